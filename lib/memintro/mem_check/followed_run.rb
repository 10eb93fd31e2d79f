# frozen_string_literal: true

require_relative "../error"
require_relative "../support/json_text"
require_relative "../support/names"
require_relative "../support/paths"
require_relative "../support/units"
require_relative "child"
require_relative "finding"
require_relative "test_run"

module Memintro
  module MemCheck
    # A run of the tests with memintro, which follows the stack of each allocation.
    # @api private
    class FollowedRun < TestRun
      # Characters that LD_PRELOAD or RUBYOPT cannot have in a path.
      UNSPEAKABLE = /[\s:;$]/.freeze
      AUTORUN = File.join(Paths::CODE, "mem_check/child_autorun.rb").freeze
      # A larger answer of a process is not read.
      MOST_BYTES = 64 << 20
      private_constant :UNSPEAKABLE, :AUTORUN, :MOST_BYTES

      # @return [Hash{String => String}]
      def environment(folder)
        refuse
        { "LD_PRELOAD" => Paths.before(Paths.hook, ENV["LD_PRELOAD"], ":"),
          "RUBYOPT" => Paths.before("-r#{AUTORUN}", ENV["RUBYOPT"], " "), "MEMINTRO_MODE" => "full",
          "MEMINTRO_STACK_DEPTH" => "64", "MEMINTRO_REPORT" => nil, "MEMINTRO_CHECK_CLEARS" => "1",
          Child::FOLDER => folder, Child::NAMES => @config.binaries.join(File::PATH_SEPARATOR),
          Child::ROOT => File.realpath(Dir.pwd), Child::SECONDS => @config.seconds.to_s,
          Child::REPEAT => (@config.repeat ? "1" : nil) }
      end

      # @return [String]
      def prefix(_folder)
        ""
      end

      # @return [Found]
      # @raise [Error] if there is no verdict
      def read(folder, status)
        answers = Dir[File.join(folder, "*.json")].sort.map { |file| answer(file) }
        answers.each { |answer| add(answer) }
        note_forks(folder)
        complain(folder, answers, status)
        @found
      end

      private

      def refuse
        unless RUBY_PLATFORM.match?(/x86_64.*linux/) && !RUBY_PLATFORM.match?(/musl/)
          raise Error, "stacks can be followed on x86-64 Linux with glibc only, and this is #{RUBY_PLATFORM}"
        end
        raise Error, "the hook is not built: there is no #{Paths.hook}" unless File.exist?(Paths.hook)

        damage = Paths.damage(Paths.hook)
        raise Error, damage if damage

        odd = [Paths.hook, AUTORUN].find { |path| path.match?(UNSPEAKABLE) }
        return unless odd

        raise Error, "#{odd.inspect} has a character that LD_PRELOAD and RUBYOPT split at: install the gem elsewhere"
      end

      def answer(file)
        if File.size(file) > MOST_BYTES
          raise Error, "a process of the tests wrote more than #{MOST_BYTES >> 20} MiB of findings"
        end

        answer = JsonText.parse(File.binread(file).force_encoding(Encoding::UTF_8))
        answer.is_a?(Hash) ? answer : raise(Error, "a process of the tests wrote findings of another form")
      rescue JsonText::Invalid => e
        raise Error, "a process of the tests wrote findings that are no JSON: #{e.message}"
      end

      def add(answer)
        @found.live_blocks = @found.live_blocks.to_i + answer["live_blocks"].to_i if answer.key?("live_blocks")
        @found.notes = (@found.notes + Array(answer["notes"])).uniq
        Array(answer["findings"]).each do |row|
          finding = finding(row)
          merge(finding) if finding
        end
      end

      def finding(row)
        frames = row.fetch("frames").map { |frame| Frame.new(**frame.transform_keys(&:to_sym)) }
        # An address that is registered twice is an error even in the library's Init_ function.
        culprit = @rules.culprit(frames)
        culprit ||= frames.index(&:watched) if row["kind"] == "registered_twice"
        return unless culprit

        Finding.new(kind: row.fetch("kind"), frames: frames, culprit: culprit, blocks: row["blocks"].to_i,
                    bytes: row["bytes"].to_i, subject: row["subject"], detail: row["detail"], live: row["live"]&.to_i,
                    ruby_lines: { row["ruby_line"].to_s => row["blocks"].to_i })
      end

      # Several lines of Ruby lead to the same place, and several processes of a run may find the same.
      def merge(finding)
        at = @found.findings.index { |one| one.same?(finding) }
        return @found.findings << finding unless at

        @found.findings[at] += finding
      end

      def note_forks(folder)
        count = Dir[File.join(folder, "*.forked")].size
        return if count.zero?

        @found.notes << "#{Units.count(count)} forked #{Units.noun(count, 'process', 'processes')} of the tests " \
                        "#{Units.noun(count, 'was', 'were')} not searched: what only a forked child loses is not found"
      end

      def complain(folder, answers, status)
        errors = answers.filter_map { |answer| answer["error"] }
        raise Error, errors.first if errors.any?

        begun = Dir[File.join(folder, "*.begun")].size
        failed = Dir[File.join(folder, "*.failed")].min
        if failed
          raise Error, "a process of the tests could not be followed: #{Names.printable(File.binread(failed, 500))}"
        end

        if begun.zero?
          raise Error, "no Ruby process of the tests has loaded memintro: is RUBYOPT or LD_PRELOAD taken away?"
        end

        if Dir[File.join(folder, "*.part")].any?
          raise Error, "a process of the tests could not write what it has found into #{folder}: is the disk full?"
        end

        if begun > answers.size
          signal = signal_of(status)
          ended = signal ? "by signal #{signal}" : "without its exit handlers (exit!, or a fatal signal)"
          count = begun - answers.size
          raise Error, "#{Units.count(count)} #{Units.noun(count, 'process', 'processes')} of the tests ended " \
                       "#{ended}, before anything could be searched"
        end
        complain_of_names(answers)
      end

      def complain_of_names(answers)
        libraries = answers.flat_map { |answer| Array(answer["libraries"]) }.uniq
        files = libraries.map { |file| File.basename(file) }
        missing = @config.binaries.map { |name| "#{name}.so" }
        missing.reject! { |name| files.any? { |file| file.start_with?(name) } }
        return if missing.empty? && libraries.any?

        loaded = answers.flat_map { |answer| Array(answer["loaded"]) }.uniq.last(12)
        missing << "a library below #{Dir.pwd}" if missing.empty?
        raise Error, "#{Names.printable(missing.join(', ').b)} was never loaded by the tests. Is binary_name right, " \
                     "and is it compiled? They loaded " \
                     "#{loaded.map { |name| Names.printable(name.b) }.join(', ')}"
      end
    end
  end
end
