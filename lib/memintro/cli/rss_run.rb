# frozen_string_literal: true

require_relative "commands/rss"
require_relative "rss_figures"
require_relative "../support/units"

module Memintro
  module CLI
    class Rss
      # `memintro rss -- CMD`: reads the memory of CMD while it runs, and its peak from the kernel when it has ended.
      # @api private
      class Run
        # Seconds between two readings without --watch.
        LOOK_SECONDS = 0.1
        # The kernel's count is rough while a process runs.
        ROUGHLY = 1 << 20

        # @param rss [Rss] prints the figures
        # @param watch [Numeric, nil] seconds
        def initialize(rss, watch:)
          @rss = rss
          @watch = watch
          @out = $stderr
        end

        # CMD gets the terminal's signals as usual; signals that are sent to memintro are passed on.
        #
        # @param command [Array<String>]
        # @return [Integer] its exit status
        def call(command)
          @own_peak = Memintro.peak_rss
          pid = spawn_command(command)
          %w[INT QUIT].each { |name| trap(name, "IGNORE") }
          %w[TERM HUP].each { |name| trap(name) { Process.kill(name, pid) } }
          status = follow(pid)
          status.signaled? ? 128 + status.termsig : status.exitstatus
        end

        private

        def spawn_command(command)
          Process.spawn([command.first, command.first], *command.drop(1))
        rescue Errno::ENOENT
          raise Failure.new("#{command.first}: command not found", 127)
        rescue Errno::EACCES, Errno::ENOEXEC, Errno::EISDIR => e
          raise Failure.new("#{command.first}: cannot be run: #{e.message.sub(/ - .*/m, '')}", 126)
        end

        def follow(pid)
          memory = @rss.memory_of(pid)
          waiter = Process.detach(pid)
          last = nil
          until waiter.join(@watch || LOOK_SECONDS)
            last = seen(memory) || last
            @rss.show(last, @out) if @watch && last
          end
          last ? conclude(last) : tell_peak(pid)
          waiter.value
        end

        # @return [MemoryFigures, nil] nil if it has just ended
        def seen(memory)
          reading = MemoryFigures.at(memory)
          reading unless reading.ended?
        rescue NoProcessError
          nil
        end

        # The last reading may be older than the peak of CMD, which only the kernel knows.
        def conclude(last)
          greater = peak > [last.figures[:peak_rss], floor].max
          last = last.with_peak(peak) if greater
          @rss.show(last, @out) if greater || !@watch
        end

        def tell_peak(pid)
          known = peak > floor
          return @rss.show(MemoryFigures.unseen(pid, known ? peak : nil), @out) if @rss.json?

          @out.puts("memintro: it ended before memintro could read it; its peak RSS was #{'at most ' unless known}" \
                    "#{Units.bytes(peak)}")
        end

        def peak
          @peak ||= ProcessMemory.waited_peak_rss
        end

        # Until it executes CMD, the child is a copy of this process, which counts as well.
        def floor
          @own_peak + ROUGHLY
        end
      end
    end
  end
end
