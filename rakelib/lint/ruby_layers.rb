# frozen_string_literal: true

require "ripper"

# Checks which folder of lib/memintro uses which. A file uses another one if it requires it, or if it names a constant
# that the other one defines. Lazy loading makes no difference.
class RubyLayers
  # Each folder, and the other folders that it may use.
  ALLOWED = {
    "support" => [],
    "runtime" => %w[support],
    "malloc" => %w[support runtime],
    "heap" => %w[support runtime],
    "process" => %w[support runtime],
    "measure" => %w[support runtime malloc heap],
    "snapshot" => %w[support runtime malloc heap process],
    "report" => %w[support runtime malloc heap process snapshot],
    "logging" => %w[support runtime malloc heap process snapshot report],
    "hunt" => %w[support runtime malloc heap process snapshot report logging],
    "api" => %w[support runtime malloc heap process measure snapshot report logging hunt control],
    "control" => %w[support runtime malloc heap process measure snapshot report logging hunt api],
    "integrations" => %w[support runtime malloc heap process measure snapshot report logging hunt api],
    "compat" => %w[support runtime malloc heap process api],
    "mem_check" => %w[support runtime malloc heap process measure snapshot report logging hunt api],
    "cli" => %w[support runtime malloc heap process snapshot report logging hunt api control integrations]
  }.freeze
  # The files outside of all folders, which users require by name, and the folders that they belong to.
  FRONT = {
    "version" => "support", "error" => "support", "sampler" => "process", "snapshot" => "api",
    "diff" => "api", "trend" => "api", "control" => "control", "autorun" => "integrations",
    "rack" => "integrations", "railtie" => "integrations", "sidekiq" => "integrations", "rspec" => "integrations",
    "minitest" => "integrations", "mem_check" => "mem_check", "mwrap" => "compat", "get_process_mem" => "compat",
    "iseq_collector" => "compat", "cli" => "cli"
  }.freeze
  # The extension's module, and the layer that must not use it.
  EXTENSION = "Native"
  WITHOUT_EXTENSION = "cli"
  # Most files outside of all folders.
  MOST_IN_FRONT = 18

  # A file: its path, the constants that it defines, and what it uses, by line.
  Source = Struct.new(:path, :defined, :constants, :required)

  def initialize(lib)
    @lib = File.expand_path(lib)
    @sources = Dir[File.join(@lib, "memintro{,/**/*}.rb")].sort.to_h { |path| [path, read(path)] }
    @homes = Hash.new { |homes, name| homes[name] = [] }
    @sources.each_value { |source| source.defined.each { |name| @homes[name] |= [source.path] } }
  end

  # @return [Integer]
  def size = @sources.size

  # @return [Array<String>] what is wrong, with file and line; empty: nothing
  def wrong
    misplaced + @sources.each_value.flat_map { |source| wrong_requires(source) + wrong_constants(source) }
  end

  private

  def misplaced
    front = @sources.each_key.map { |path| path.delete_prefix("#{@lib}/memintro/") }.grep_v(%r{/})
    found = @sources.each_key.reject { |path| layer(path) }.map { |path| "#{path}: its folder is in no layer" }
    return found if front.size <= MOST_IN_FRONT

    found + ["#{front.size} files in lib/memintro itself, at most #{MOST_IN_FRONT} may be: #{front.join(' ')}"]
  end

  # A file that users require by name may be the first of all, and then needs what every process has.
  def wrong_requires(source)
    source.required.filter_map do |name, line|
      target = File.expand_path(name.delete_suffix(".rb"), File.dirname(source.path)) << ".rb"
      next if layer(target) == "api" && front?(source.path)

      complaint(source, target, line, "requires #{name}") if @sources.key?(target)
    end
  end

  def wrong_constants(source)
    source.constants.filter_map do |nesting, name, line|
      if layer(source.path) == WITHOUT_EXTENSION && name.split("::").include?(EXTENSION)
        next "#{shown(source)}:#{line}: #{WITHOUT_EXTENSION} names #{name}, which is not the command's"
      end

      home = home(source, nesting, name) or next
      complaint(source, home, line, "names #{name}")
    end.uniq
  end

  def complaint(source, target, line, what)
    from = layer(source.path)
    to = layer(target)
    return if from.nil? || to.nil? || from == to || ALLOWED.fetch(from).include?(to)

    "#{shown(source)}:#{line}: #{from} #{what}, which is #{to}'s"
  end

  def shown(source) = source.path.delete_prefix("#{File.dirname(@lib)}/")

  def front?(path) = FRONT.key?(path.delete_prefix("#{@lib}/memintro/").delete_suffix(".rb"))

  def layer(path)
    name = path.delete_prefix("#{@lib}/").delete_suffix(".rb")
    return "api" if name == "memintro"

    folder, rest = name.delete_prefix("memintro/").split("/", 2)
    rest ? (folder if ALLOWED.key?(folder)) : FRONT[folder]
  end

  # The file that defines a constant, by Ruby's rules of lookup; the longest known part of the name decides. If
  # several files open a module, the one that is named after it defines it; if none is, no file does.
  def home(source, nesting, name)
    parts = name.split("::")
    parts.size.downto(1) do |count|
      wanted = parts.first(count).join("::")
      nesting.size.downto(0) do |depth|
        homes = @homes.fetch([*nesting.first(depth), wanted].join("::"), nil) or next
        return homes.first if homes.size == 1

        own = homes.select { |path| File.basename(path, ".rb").delete("_").casecmp?(parts[count - 1]) }
        return own.include?(source.path) ? nil : own.min_by(&:size)
      end
    end
    nil
  end

  def read(path)
    source = Source.new(path, [], [], [])
    tree = Ripper.sexp(File.read(path)) or raise "#{path} is not Ruby"
    visit(tree, [], source)
    source
  end

  def visit(node, nesting, source)
    return unless node.is_a?(Array)

    case node.first
    when :module, :class then return enter(node, nesting, source)
    when :var_ref, :const_path_ref, :top_const_ref
      return if constant(node, nesting, source)
    when :assign then define(node, nesting, source)
    when :command then note_require(node, source)
    end
    node.each { |child| visit(child, nesting, source) }
  end

  def enter(node, nesting, source)
    name, = constant_name(node[1])
    inner = [*nesting, *name.split("::")]
    source.defined << inner.join("::") unless inner == ["Memintro"]
    node.drop(2).each { |child| visit(child, inner, source) }
  end

  def define(node, nesting, source)
    field = node[1]
    source.defined << [*nesting, field[1][1]].join("::") if field[0] == :var_field && field[1]&.first == :@const
  end

  def constant(node, nesting, source)
    name, line = constant_name(node)
    source.constants << [nesting, name, line] if name && !name.start_with?("::")
    name
  end

  # @return [Array(String, Integer), nil] such as "Table", and its line; nil where the beginning is no constant
  def constant_name(node)
    case node&.first
    when :@const then [node[1], node[2][0]]
    when :const_ref, :var_ref then node[1].first == :@const ? constant_name(node[1]) : nil
    when :top_const_ref then ["::#{node[1][1]}", node[1][2][0]]
    when :const_path_ref
      left, line = constant_name(node[1])
      left && ["#{left}::#{node[2][1]}", line]
    end
  end

  def note_require(node, source)
    return unless node[1][1] == "require_relative"

    content = node[2].flatten.each_cons(2).find { |kind, _| kind == :@tstring_content }
    source.required << [content[1], node[1][2][0]] if content
  end
end
