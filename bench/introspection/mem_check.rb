# frozen_string_literal: true

# How long a memory check of a gem's tests takes beside Valgrind, on the same tests: the fixture's clean extension, with
# as much work for Ruby as tests of a second have.
# Run by itself: ruby -Ilib bench/introspection/mem_check.rb [ROUNDS]

require "fileutils"
require "tmpdir"
require "rbconfig"
require_relative "../../spec/support/native_programs"

module Bench
  module Introspection
    # Plain, checked and under Valgrind in turn, as processes of their own; the median of each. Processor time, rake's
    # included, because a busy machine changes all else.
    module MemCheck
      LIB = File.expand_path("../../lib", __dir__)
      TESTS = <<~RUBY
        require "minitest/autorun"
        require "planted"
        class TestWork < Minitest::Test
          20.times do |i|
            define_method(:"test_\#{i}") do
              words = Array.new(20_000) { |n| "word \#{n % 977}" }
              assert_equal 977, words.tally.size
              assert words.sort_by { |word| word.reverse }.map(&:upcase).join(" ").scan(/WORD 9\\d+/).size.positive?
              assert Planted.clean(20_000)
              2_000.times { Planted.remember && Planted::Freed.new }
            end
          end
        end
      RUBY
      RAKEFILE = <<~RUBY
        require "memintro/mem_check"
        Memintro::MemCheck.config(binary_name: "planted", backend: ENV.fetch("BACKEND", "memintro").to_sym)
        Memintro::MemCheck::TestTask.new { |t| t.test_files = ["test/work_test.rb"] }
      RUBY

      def self.call(rounds, out = $stdout)
        Dir.mktmpdir do |folder|
          prepare(folder)
          times = Hash.new { |all, kind| all[kind] = [] }
          rounds.times { KINDS.each { |kind, command| times[kind] << time(folder, kind, command) } }
          medians = times.transform_values { |list| list.sort[list.size / 2] }
          times.each do |kind, all|
            out.puts format("%-9s %7.2f s %p", kind, medians[kind], all.map { |one| one.round(2) })
          end
          plain, checked, valgrind = medians.values_at(:plain, :memintro, :valgrind)
          out.puts format("Valgrind takes %.1f times as long as the check, and %.1f times as long as the tests " \
                          "alone; the check %.1f times", valgrind / checked, valgrind / plain, checked / plain)
        end
      end

      RAKE = [RbConfig.ruby, "-I#{LIB}", "-S", "rake", "mem_check"].freeze
      KINDS = { plain: [RbConfig.ruby, "-Ilib", "test/work_test.rb"], memintro: RAKE, valgrind: RAKE }.freeze
      private_constant :RAKE

      def self.prepare(folder)
        FileUtils.mkdir_p([File.join(folder, "lib"), File.join(folder, "test")])
        FileUtils.cp(NativePrograms.extension("planted.c"), File.join(folder, "lib"))
        File.write(File.join(folder, "Rakefile"), RAKEFILE)
        File.write(File.join(folder, "test", "work_test.rb"), TESTS)
      end
      private_class_method :prepare

      def self.time(folder, kind, command)
        env = { "BACKEND" => kind.to_s, "MT_NO_PLUGINS" => "1" }
        begun = processor_time
        system(env, *command, chdir: folder, out: File::NULL, err: File::NULL) || abort("#{kind} failed")
        processor_time - begun
      end
      private_class_method :time

      def self.processor_time
        times = Process.times
        times.cutime + times.cstime
      end
      private_class_method :processor_time
    end
  end
end

Bench::Introspection::MemCheck.call(Integer(ARGV.fetch(0, 3))) if $PROGRAM_NAME == __FILE__
