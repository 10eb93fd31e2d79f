# frozen_string_literal: true

# The declarations of sig/, read line by line: enough to compare names and keywords with the code without rbs.
module Signatures
  # Paths as YARD writes them: Memintro::Totals#live_bytes, Memintro.start.
  DECLARATIONS = {
    /^ *def self\.([^\s:]+): *(.*)/ => ".", /^ *def ([^\s:]+): *(.*)/ => "#",
    /^ *attr_(?:reader|accessor) (\w+):()/ => "#", /^ *alias (\S+)()/ => "#"
  }.freeze

  module_function

  # @return [Hash{String => Hash{String => Array<String>}}] by class or module: keywords by path, of all overloads
  def read(folder)
    Dir[File.join(folder, "**", "*.rbs")].sort.each_with_object({}) do |file, found|
      scope = []
      File.foreach(file, chomp: true) { |line| read_line(line, scope, found) }
    end
  end

  def read_line(line, scope, found)
    return scope.push(line[/(?:class|module|interface) ([\w:]+)/, 1]) if line.match?(/^ *(class|module|interface) /)
    return scope.pop if line.match?(/^ *end\b/)

    methods = found[scope.join("::")] ||= {}
    return methods[methods.keys.last].concat(keywords(line[/\| *(.*)/, 1])).uniq! if line.match?(/^ *\| /)

    form, separator = DECLARATIONS.find { |pattern, _| line.match?(pattern) }
    return unless form

    name, types = line.match(form).captures
    path = "#{scope.join('::')}#{separator}#{name}"
    methods[path] = keywords(types)
    methods["#{path}="] = [] if line.include?("attr_accessor")
  end

  # Only of the method itself, not of its block or of parts of types.
  def keywords(types)
    depth = 0
    own = types.sub(/\A\[\w+(, \w+)*\] */, "").each_char.with_object(+"") do |char, text|
      depth += 1 if "([{".include?(char)
      text << (depth == 1 ? char : " ")
      depth -= 1 if ")]}".include?(char)
      break text if depth.zero?
    end
    own.scan(/[(,] *\??(\w+):/).flatten
  end
end
