# frozen_string_literal: true

module Memintro
  # Figures in the form people read. Nothing here is meant to be parsed.
  module Units
    # Powers of 1,024.
    BYTES = %w[B KiB MiB GiB TiB PiB].freeze

    # @param count [Integer] bytes, negative allowed
    # @return [String] such as `"512 B"`, `"48.8 MiB"`
    def self.bytes(count)
      size = count.abs
      power = 0
      # 1,023.95 and more would be written as "1024.0".
      power += 1 while power < BYTES.size - 1 && size >= (1024**power) * (power.zero? ? 1024 : 1023.95)
      text = power.zero? ? size.to_s : format("%.1f", size.fdiv(1024**power))
      "#{'-' if count.negative?}#{text} #{BYTES[power]}"
    end

    # @param count [Integer] bytes, negative allowed
    # @return [String] as {bytes}, with a plus before what grew
    def self.signed_bytes(count)
      "#{'+' if count.positive?}#{bytes(count)}"
    end

    # @param value [Numeric]
    # @param error [Float, nil] its standard error; nil: it is exact
    # @param interval [Array(Numeric, Numeric), nil] the least and the most that it is likely to be
    # @yieldparam number [Numeric] to be put into words, without a sign where it is the error
    # @return [String] such as `"~48.8 MiB ±2.1 MiB"`; `"~512.0 KiB (87.9 KiB to 3.3 MiB)"` where the interval reaches
    #   more than twice as far up as down; exact figures as the block gives them
    def self.uncertain(value, error, interval = nil)
      return yield(value) unless error

      low, high = interval
      return "~#{yield(value)} (#{yield(low)} to #{yield(high)})" if interval && high - value > 2 * (value - low) + 1

      "~#{yield(value)} ±#{yield(whole(error))}"
    end

    # An error that was squared and extracted again must not become the next greater number. `round(6)` is not used,
    # because it is the C library's `pow`, whose tables take 0.2 MB that few programs have in memory.
    def self.whole(error)
      (error - 0.0000005).ceil
    end
    private_class_method :whole

    # @param growth [Numeric]
    # @param error [Float, nil] its standard error; nil: it is exact
    # @param unit [Symbol] see {plain}
    # @return [String] such as `"~+48.8 MiB ±2.1 MiB"`; exact figures as {signed} has them
    def self.uncertain_growth(growth, error, unit = :bytes)
      error ? "~#{signed(growth, unit)} ±#{plain(whole(error), unit)}" : signed(growth, unit)
    end

    # @param number [Integer]
    # @return [String] such as `"1,234,567"`
    def self.count(number)
      number.to_s.gsub(/(?<=\d)(?=(?:\d{3})+\z)/, ",")
    end

    # @param number [Numeric]
    # @param noun [String] in the singular
    # @param plural [String]
    # @return [String] that of the two which goes with the number
    def self.noun(number, noun, plural = "#{noun}s")
      number == 1 ? noun : plural
    end

    # @param number [Integer]
    # @param noun [String] in the singular
    # @return [String] such as `"1 page"`, `"1,204 pages"`
    def self.counted(number, noun)
      "#{count(number)} #{noun(number, noun)}"
    end

    # @param number [Numeric]
    # @param unit [Symbol] `:bytes`, `:ms` or `:count`
    # @return [String]
    def self.plain(number, unit)
      case unit
      when :bytes then bytes(number)
      when :ms then "#{count(number.round)} ms"
      else number.is_a?(Float) ? number.round(2).to_s : count(number)
      end
    end

    # @param number [Numeric]
    # @param unit [Symbol] `:bytes`, `:ms` or `:count`
    # @return [String] as {plain}, with a plus before what grew
    def self.signed(number, unit)
      "#{'+' if number.positive?}#{plain(number, unit)}"
    end

    # @param seconds [Numeric]
    # @return [String] such as `"30.1 s"`, `"11.5 minutes"`
    def self.duration(seconds)
      return format("%.1f s", seconds) if seconds.abs < 120
      return format("%.1f minutes", seconds / 60.0) if seconds.abs < 7200

      format("%.1f hours", seconds / 3600.0)
    end

    # @param part [Integer]
    # @param whole [Integer]
    # @return [String] such as `"12.3%"`; a dash where there is no whole to have a share of
    def self.share(part, whole)
      whole.positive? ? format("%.1f%%", 100.0 * part / whole) : "-"
    end
  end
end
