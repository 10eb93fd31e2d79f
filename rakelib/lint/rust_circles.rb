# frozen_string_literal: true

# Finds the files of a crate that use each other in a circle. A file uses another one if it imports something from it,
# or names it by a path (`use crate::…`, `use super::…`, `crate::path::…`), outside of comments and tests. An item
# that another file re-exports counts for the file that defines it. A module may name its own children. A child that
# uses its parents does not count, because Rust spreads one type over several files in that way.
class RustCircles
  # Tokens of Rust such as words and braces, without comments, strings and characters.
  TOKEN = /\w+|::|[{}(),;*\[\]#!]/
  SILENT = %r{//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^'\\])'}m
  TEST = /#\[cfg\(test\)\]/

  # A file: its crate, its own name in Rust, its modules, and the paths that it uses, by the names it gives to them.
  Source = Struct.new(:path, :crate, :name, :children, :used, :aliases)

  # @param crates [String] a folder of crates
  def initialize(crates)
    @folder = File.expand_path(crates)
    @sources = Dir[File.join(@folder, "*/src")].sort.flat_map { |src| read_crate(src) }
    @by_name = @sources.to_h { |source| [[source.crate, source.name], source] }
  end

  # @return [Integer]
  def size = @sources.size

  # @return [Array<Array<String>>] the files of each circle, by name; the largest circle first
  def circles
    edges = @sources.to_h { |source| [source.path, used_by(source)] }
    reached = edges.keys.to_h { |path| [path, reached_from(path, edges)] }
    circles = edges.keys.map do |path|
      reached.fetch(path).select { |other| reached.fetch(other).include?(path) }.sort
    end
    circles.uniq.reject(&:empty?).sort_by { |paths| [-paths.size, paths] }
  end

  private

  def read_crate(src)
    crate = File.basename(File.dirname(src))
    Dir[File.join(src, "**/*.rs")].sort.filter_map do |path|
      name = path.delete_prefix("#{src}/").delete_suffix(".rs").split("/")
      next if name == ["main"]

      name.pop if %w[lib mod].include?(name.last)
      read(path, crate, name)
    end
  end

  def read(path, crate, name)
    tokens = without_tests(File.read(path).gsub(SILENT, " ")).scan(TOKEN)
    source = Source.new(path.delete_prefix("#{@folder}/"), crate, name, [], [], {})
    tokens.each_cons(3) { |word, child, rest| source.children << child if word == "mod" && rest == ";" }
    behind = 0
    tokens.each_with_index do |token, at|
      next if at < behind

      if token == "use"
        behind = import(tokens, at + 1, [], source)
      elsif path_begins?(tokens, at, source)
        source.used << path_at(tokens, at)
      end
    end
    source
  end

  # A path in the middle of code.
  def path_begins?(tokens, at, source)
    return false unless tokens[at + 1] == "::" && tokens[at - 1] != "::"

    %w[crate super self].include?(tokens[at]) || source.children.include?(tokens[at])
  end

  def path_at(tokens, at)
    path = [tokens[at]]
    path << tokens[at += 2] while tokens[at + 1] == "::" && tokens[at + 2]&.match?(/\A\w/)
    path
  end

  # Collects the names of one `use` from this token on, and returns the position after it.
  def import(tokens, at, prefix, source)
    path = prefix.dup
    loop do
      case tokens[at]
      when "{"
        at = import(tokens, at + 1, path, source)
        at = import(tokens, at + 1, path, source) while tokens[at] == ","
        return at + 1
      when "::" then at += 1
      when "as" then return note(source, path, tokens[at + 1], at + 2)
      when nil, ",", ";", "}" then return note(source, path, path.last, at)
      else
        path += [tokens[at]]
        at += 1
      end
    end
  end

  def note(source, path, name, stop)
    return stop if path.empty?

    path, name = path[..-2], path[-2] if path.size > 1 && path.last == "self"
    source.used << path
    source.aliases[name] = path
    stop
  end

  # Removes items under `#[cfg(test)]`, up to their semicolon or closing brace.
  def without_tests(text)
    while (found = text.match(TEST))
      rest = found.post_match
      depth = 0
      stop = rest.index(/[{};]/) or break
      while stop
        depth += { "{" => 1, "}" => -1 }.fetch(rest[stop], 0)
        break if depth <= 0

        stop = rest.index(/[{}]/, stop + 1)
      end
      text = found.pre_match + rest[((stop || rest.size) + 1)..].to_s
    end
    text
  end

  def used_by(source)
    files = source.used.filter_map { |path| home(source, path) }
    files.reject { |file| file == source || source.name.first(file.name.size) == file.name }.map(&:path).uniq
  end

  # The file that a path of this file leads to; nil if it is in another crate.
  def home(source, path, depth = 0)
    module_name, rest = start(source, path)
    return unless module_name

    file = @by_name[[source.crate, module_name]] or return
    until rest.empty?
      inner = @by_name[[source.crate, file.name + rest.first(1)]] or break
      file = inner
      rest = rest.drop(1)
    end
    passed_on = file.aliases[rest.first] unless rest.empty? || file == source || depth > 8
    (home(file, passed_on + rest.drop(1), depth + 1) if passed_on && passed_on.first != rest.first) || file
  end

  def start(source, path)
    first, *rest = path
    return [[], rest] if first == "crate"
    return [source.name, rest] if first == "self"
    return [source.name, path] if source.children.include?(first)
    return unless first == "super"

    name = source.name[..-2]
    name, rest = name[..-2], rest.drop(1) while rest.first == "super"
    [name, rest]
  end

  def reached_from(path, edges)
    reached = []
    open = edges.fetch(path).dup
    while (other = open.pop)
      next if reached.include?(other)

      reached << other
      open.concat(edges.fetch(other))
    end
    reached
  end
end
