# frozen_string_literal: true

require "strscan"

# Reads a Dockerfile's ENV instruction by the builder's rules: first it is split into words, then quotes go and
# variables are replaced by what the image had before. What those rules leave to guess is refused here.
module DockerfileEnv
  # Bare characters, quoted text and escaped characters, up to white space.
  WORD = /(?:[^\s\\"']|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+/

  module_function

  # instruction: one line. image: the variables so far. Answers those that the instruction sets.
  def read(instruction, image = {})
    line = instruction[/\AENV (.*)\n\z/, 1] or raise "not one line of ENV: #{instruction.inspect}"
    words(StringScanner.new(line)).to_h do |word|
      name, value = word.match(/\A([A-Za-z_]\w*)=(.*)\z/)&.captures
      raise "not NAME=VALUE: #{word.inspect}" unless name

      [name, text(StringScanner.new(value), image)]
    end
  end

  def words(scanner)
    found = []
    until scanner.eos?
      found << (scanner.scan(WORD) || raise("no word at #{scanner.rest.inspect}"))
      scanner.skip(/\s+/) || scanner.eos? || raise("an open quote in #{scanner.string.inspect}")
    end
    found
  end

  # Up to `ending`, or to the end where that is nil.
  def text(scanner, image, ending = nil)
    result = +""
    until ending && scanner.skip(ending)
      return ending ? raise("#{ending.inspect} is missing") : result if scanner.eos?

      found = quoted(scanner, image) || variable(scanner, image)
      result << (found || scanner.scan(/\\./)&.slice(1..) || scanner.getch)
    end
    result
  end

  def quoted(scanner, image)
    return scanner.scan(/'[^']*'/)[1..-2] if scanner.check(/'/)
    return unless scanner.skip(/"/)

    result = +""
    until scanner.skip(/"/)
      raise "an open quote in #{scanner.string.inspect}" if scanner.eos?

      # Before anything else a backslash is one.
      result << (variable(scanner, image) || scanner.scan(/\\["$\\]/)&.slice(1..) || scanner.getch)
    end
    result
  end

  def variable(scanner, image)
    return unless scanner.skip(/\$/)
    return image.fetch(scanner[1], "") if scanner.skip(/(\w+)/) || scanner.skip(/\{(\w+)\}/)

    scanner.skip(/\{(\w+):\+/) or raise "a dollar of its own before #{scanner.rest.inspect}"
    name = scanner[1]
    instead = text(scanner, image, /\}/)
    image.fetch(name, "").empty? ? "" : instead
  end
end
