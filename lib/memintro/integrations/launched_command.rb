# frozen_string_literal: true

require_relative "../runtime/background"
require_relative "../support/advice"
require_relative "../support/output_owner"
require_relative "../support/output_target"
require_relative "../support/warn_once"
require_relative "../report/account_report"
require_relative "../report/leaks_report"
require_relative "../report/heap_table"

module Memintro
  # The part of `memintro snapshot`, `diff`, `iseqs`, `histogram`, `account` and `leaks` inside the program that they
  # start: reads its figures when it ends and, with --every, at an interval. Used by integrations/launched_autorun.
  #
  # The program must not be affected: errors are reported once, on standard error.
  # @api private
  class LaunchedCommand
    include WarnOnce

    # Prefix of the variables with its instructions.
    PREFIX = "MEMINTRO_LAUNCHED_"
    # Seconds that the thread of --every may take to finish at the end of the program.
    PATIENCE = 10
    private_constant :PATIENCE

    # @param env [#[]] variables
    def initialize(env)
      @env = env
      @number = 0
      @warned = false
    end

    # @return [nil]
    def install
      @owner = OutputOwner.new(self["OUT"], :appointed) if self["OUT"]
      # For `require "memintro"` in a program whose bundle does not contain it.
      $LOAD_PATH.push(Paths::LIB) unless $LOAD_PATH.include?(Paths::LIB)
      Memintro.start if self["TRACK"] && !Memintro.tracking?
      begin_process
      AfterFork.install { begin_process }
      at_exit { write_last }
      repeat(Float(self["EVERY"])) if self["EVERY"]
      nil
    end

    # Takes the figures once, and writes them.
    # @return [Boolean] whether that worked
    def write
      Memintro.untracked do
        @number += 1
        Advice.naming_commands { send(:"write_#{self["COMMAND"]}") }
      end
      true
    rescue StandardError, ScriptError, NoMemoryError => e
      tell_once(e)
      false
    end

    private

    # Collects garbage first, because it would hide retained memory. Waits for a write in progress, which would
    # otherwise get the same number, or be lost.
    def write_last
      @background&.stop(patience: PATIENCE)
      GC.start unless self["EVERY"]
      write
    end

    def [](name)
      value = @env["#{PREFIX}#{name}"]
      value unless value.to_s.empty?
    end

    # In a forked child the numbers start again, and growth counts from the fork.
    def begin_process
      @number = 0
      return unless self["COMMAND"] == "diff"

      GC.start
      @before = Memintro.snapshot(*parts)
    rescue StandardError, NoMemoryError => e
      tell_once(e)
    end

    def repeat(seconds)
      @background = Background.start("memintro-inspect") { |stop| write until stop.wait(seconds) }
    end

    def write_snapshot
      snapshot = Memintro.snapshot(*parts)
      return STDERR.write("#{snapshot.summary(top)}\n") unless file

      snapshot.save(file)
      forget_old if self["KEEP"]
    end

    def write_diff
      put(Memintro.snapshot(*parts) - @before) if @before
    end

    def write_iseqs
      by = (self["BY"] || "path").to_sym
      put(HeapTable.iseqs(Memintro.top_iseqs(nil, by: by), by: by))
    end

    def write_histogram
      put(HeapTable.classes(Memintro.histogram))
    end

    def write_account
      put(AccountReport.new(Memintro.account))
    end

    def write_leaks
      put(LeaksReport.new(Memintro.leaks(gc: false, first_words: !self["FIRST_WORDS"].nil?)))
    end

    def parts
      self["PARTS"].to_s.split(",").map(&:to_sym)
    end

    def put(what)
      options = { format: (self["FORMAT"] || "text").to_sym, top: top }
      return what.write(STDERR, **options) unless file

      Snapshot::Saved.write(file, OutputTarget.text { |io| what.write(io, **options) })
    end

    # @return [Integer, nil] nil: all
    def top
      self["TOP"] == "all" ? nil : Integer(self["TOP"], 10)
    end

    def file(number = @number)
      @owner&.file(self["OUT"].gsub("%n", number.to_s))
    end

    def forget_old
      old = @number - Integer(self["KEEP"], 10)
      File.unlink(file(old)) if old.positive?
    rescue SystemCallError
      nil # somebody has taken it away
    end

    def tell_once(error)
      warn_once("no #{self['COMMAND']} of process #{Process.pid}: #{error.message}")
    end
  end
end
