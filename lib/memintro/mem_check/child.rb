# frozen_string_literal: true

require_relative "../runtime/after_fork"
require_relative "../runtime/loader"
require_relative "../malloc/leaks/reading"
require_relative "../support/json_text"
require_relative "finding"
require_relative "repetitions"
require_relative "rules"

module Memintro
  module MemCheck
    # The part of a check in the process of the tests: follows native stacks, and writes its findings when the process
    # ends.
    # @api private
    class Child
      # Variables with its instructions.
      FOLDER = "MEMINTRO_CHECK_FOLDER"
      NAMES = "MEMINTRO_CHECK_NAMES"
      ROOT = "MEMINTRO_CHECK_ROOT"
      SECONDS = "MEMINTRO_CHECK_SECONDS"
      REPEAT = "MEMINTRO_CHECK_REPEAT"
      # Functions of Ruby by which an address is registered.
      REGISTER = /\A(?:rb_gc_register_address|rb_global_variable)\z/.freeze
      # `libfoo.so(symbol+0x1c)`
      NAME = /\A(?<file>.*?)\((?<function>.*)\+0x\h+\)\z/m.freeze
      # Seconds in which a thread that runs at the end of the tests may end: longer than retries on a live process
      # take on a busy machine.
      PATIENCE = 5
      # A stack: its frames, and the line of Ruby.
      Stack = Struct.new(:frames, :line)
      private_constant :REGISTER, :NAME, :PATIENCE, :Stack

      # @param variables [Hash{String => String}]
      def initialize(variables)
        @folder = variables.fetch(FOLDER)
        @names = variables.fetch(NAMES, "").split(File::PATH_SEPARATOR)
        @root = variables.fetch(ROOT)
        @seconds = Integer(variables.fetch(SECONDS, "120"), 10)
        Repetitions.wanted = @repetitions = Repetitions.new if variables[REPEAT] == "1"
        @rules = Rules.new
      end

      # @return [nil]
      def install
        @pid = Process.pid
        write("begun", {})
        trouble = begin_to_follow
        trouble ||= unknown_library
        return write("json", { "error" => trouble }) if trouble

        AfterFork.install { tell_of_fork }
        at_exit { finish if Process.pid == @pid }
        nil
      end

      private

      # @return [String, nil] why not
      def begin_to_follow
        unless Native.preloaded? && Native.mode == :full
          return "a process of the tests has no hook in front, because LD_PRELOAD was taken away or another library " \
                 "comes first in it"
        end

        Native.follow_native_stacks(@names, @root) || Native.probe_native_stacks
      end

      # Loads the libraries.
      # @return [String, nil] why one of them cannot be followed
      def unknown_library
        unknown = libraries.reject { |file| Native.load_library(file) }
        "#{unknown.first} was loaded, and the loader's list did not tell of it" if unknown.any?
      end

      # Loads the libraries that the tests will load, so that they are known before their Init_ functions run.
      def libraries
        folders = [*$LOAD_PATH.map(&:to_s), File.join(@root, "lib")].select { |folder| folder.start_with?("#{@root}/") }
        found = folders.uniq.flat_map { |folder| Dir.glob("**/*.so", base: folder).map { |file| "#{folder}/#{file}" } }
        found.select! { |file| @names.include?(File.basename(file, ".so")) } unless @names.empty?
        found.map { |file| File.realpath(file) }.uniq.grep_v(%r{\A#{Regexp.escape(@root)}/(?:.*/)?vendor/})
      rescue SystemCallError
        []
      end

      # A forked child is not searched, and the report says so.
      def tell_of_fork
        File.write(File.join(@folder, "#{Process.pid}.forked"), "")
      rescue SystemCallError
        nil # as below
      end

      def finish
        Memintro.untracked { write("json", found) }
      rescue StandardError, ScriptError, NoMemoryError => e
        write("json", { "error" => "what a process of the tests has lost could not be searched: #{e.class}: " \
                                   "#{e.message}" })
      end

      def write(kind, value)
        file = File.join(@folder, "#{@pid}.#{kind}")
        File.write("#{file}.part", JsonText.dump(value))
        File.rename("#{file}.part", file)
      rescue SystemCallError
        nil # the folder is gone: it is not waited for any more
      end

      def found
        libraries = Native.watched_libraries
        trouble = blindness(libraries)
        GC.start
        leaked, unsearched = search
        unfreed = Native.unfreed_data
        live = Native.native_stack_sites.reject { |_, row| row.first.zero? }
        @live = live.transform_values(&:first)
        @stacks = stacks([*live.keys, *leaked.map { |row| row[1] }, *unfreed.map { |row| row[1] }].uniq)
        { "libraries" => libraries.map(&:first), "loaded" => loaded, "program" => $PROGRAM_NAME, "notes" => notes,
          "live_blocks" => live.sum { |_, row| row.first }, "findings" => findings(leaked, unfreed, live.keys),
          "error" => trouble || unsearched }
      end

      # A check that could not see anything finds nothing. The report must not read as if there were no leak.
      # @param libraries [Array<Array(String, Boolean)>]
      # @return [String, nil] why some allocations of the libraries were not followed
      def blindness(libraries)
        late = libraries.select(&:last).map { |file,| File.basename(file) }
        return "what #{late.join(', ')} has allocated could not be followed: it became known too late" if late.any?

        lost = Native.lost_native_stacks
        return "#{Units.counted(lost, 'allocation')} of the libraries could not be kept" if lost.positive?

        Native.probe_native_stacks
      end

      # Lost blocks.
      # @return [Array(Array, String)] leaked rows of {LeakReading#lost_sites}, and why there may be more
      def search
        followed = Native.native_stack_sites
        reading = LeakReading.search(first_words: false, confirm: true, seconds: @seconds, chunks_only: true,
                                     patience: PATIENCE) { |site| followed.key?(site) }
        undecided, leaked = reading.lost_sites.partition { |verdict,| verdict == :undecided }
        undecided.select! { |_, site,| followed.key?(site) }
        return [leaked, nil] if undecided.empty?

        blocks = undecided.sum { |row| row[2] }
        [leaked, "a thread of the tests may hold #{Units.counted(blocks, 'block')} of the libraries in registers, " \
                 "so whether they are lost is not known: end that thread before the tests end"]
      rescue LeaksError => e
        [[], "leaks were not searched: #{e.message}"]
      end

      def loaded
        $LOADED_FEATURES.grep(/\.so\z/).map { |file| File.basename(file, ".so") }.uniq.last(200)
      end

      def notes
        dropped = Memintro.totals.dropped
        notes = []
        notes << "memory ran out: #{Units.counted(dropped, 'allocation')} could not be followed" if dropped.positive?
        notes
      end

      def findings(leaked, unfreed, live)
        unfreed = unfreed.select { |_, site,| @stacks.key?(site) }
        left = leaked.select { |_, site,| @stacks.key?(site) }
        left = left.group_by { |verdict, site,| [verdict, site] }
        left = left.map { |key, rows| [*key, rows.sum { |row| row[2] }, rows.sum { |row| row[3] }] }
        [*without_free(unfreed, left), *left.filter_map { |row| leak(*row) }, *registered(live),
         *growing(left.map { |row| row[1] } + unfreed.map { |row| row[1] })]
      end

      # A block that an object without a free function has left is not reported as lost again.
      def without_free(unfreed, left)
        unfreed.group_by { |name, site,| [name, site] }.map do |(name, site), rows|
          gone = rows.select { |row| row[2] }
          row = left.find { |verdict, of,| verdict == :leaked && of == site }
          if row
            row[2] -= gone.sum { |one| one[3] }
            row[3] -= gone.sum { |one| one[4] }
          end
          count = gone.sum { |one| one[3] }
          detail = "objects were collected, and left their data behind" if count.positive?
          blocks, bytes = [3, 4].map { |at| rows.sum { |one| one[at] } }
          finding("no_free", site, blocks, bytes, "subject" => name, "detail" => detail)
        end
      end

      def leak(verdict, site, blocks, bytes)
        return unless blocks.positive?

        finding(verdict == :leaked ? "leak" : "indirect", site, blocks, bytes, "live" => @live.fetch(site, blocks))
      end

      # Lost blocks, and those of objects without a free function, are already known.
      def growing(known)
        rows = @repetitions ? @repetitions.growing.reject { |site,| known.include?(site) || !@stacks.key?(site) } : []
        rows.map do |site, (test, blocks, bytes)|
          detail = format("%.1f blocks and %.0f bytes each time %s runs", blocks, bytes, test)
          finding("grows", site, @live.fetch(site, 0), (blocks ? bytes * @live.fetch(site, 0) / blocks : 0).round,
                  "detail" => detail)
        end
      end

      def registered(live)
        sites = live.select { |site| registers?(@stacks[site]) }
        rows = Native.registered_addresses(sites)
        times = rows.group_by { |row| row[1] }
        twice, once = times.partition { |_, all| all.sum(&:last) > 1 }
        once = once.flat_map(&:last).reject { |site, _, static,| static || @rules.init?(@stacks[site].frames) }
        [*twice.map { |name, all| twice(name, all) },
         *once.group_by(&:first).map { |site, all| finding("registered", site, all.size, 0) }]
      end

      # Shows a line outside of the library's Init_ function, if there is one.
      def twice(name, rows)
        site = rows.map(&:first).min_by { |one| @rules.init?(@stacks[one].frames) ? 1 : 0 }
        finding("registered_twice", site, rows.sum(&:last), 0, "subject" => name)
      end

      def registers?(stack)
        stack && stack.frames.take_while { |frame| !frame.watched }.any? { |frame| frame.function&.match?(REGISTER) }
      end

      def finding(kind, site, blocks, bytes, **more)
        stack = @stacks.fetch(site)
        { "kind" => kind, "blocks" => blocks, "bytes" => bytes, "ruby_line" => stack.line,
          "frames" => stack.frames.map(&:to_h), **more.transform_keys(&:to_s) }
      end

      # @return [Hash{Integer => Stack}] those with a frame of the libraries
      def stacks(sites)
        all = Native.native_stacks_of(sites).transform_values do |frames, line|
          Stack.new(frames.map { |frame| frame(*frame) }, line)
        end
        all.select { |_, stack| stack.frames.any?(&:watched) }
      end

      def frame(name, library, place, watched)
        file, line = place&.match(/\A(.*):(\d+)\z/m)&.captures
        Frame.new(function: name.match(NAME)&.[](:function).then { |text| text unless text.to_s.empty? },
                  library: library, file: file, line: line&.to_i, watched: watched)
      end
    end
  end
end
