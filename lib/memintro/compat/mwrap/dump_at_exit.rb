# frozen_string_literal: true

require_relative "../../support/files"

module Mwrap
  # The `MWRAP` variable: `dump_path:FILE,dump_min:BYTES` or `dump_fd:N,dump_min:BYTES`. If both targets are given the
  # path counts; it is appended to.
  module DumpAtExit
    # @api private
    # @param text [String, nil] the variable
    # @return [nil]
    def self.install(text)
      options = parse(text.to_s)
      return if Memintro.disabled?
      return unless options["dump_path"] || options["dump_fd"]

      at_exit { Memintro.untracked { dump(options) } }
      nil
    end

    # @return [Hash{String => String}]
    def self.parse(text)
      text.split(",").to_h do |option|
        name, value = option.split(":", 2)
        [name, value.to_s]
      end
    end
    private_class_method :parse

    def self.dump(options)
      least = Integer(options.fetch("dump_min", "0"), 10)
      if options["dump_path"]
        File.open(options["dump_path"], "a") { |file| Memintro::Files.bounded(file) { |io| Mwrap.dump(io, least) } }
      else
        stream = IO.for_fd(Integer(options["dump_fd"], 10), "w", autoclose: false)
        Memintro::Files.bounded(stream) { |io| Mwrap.dump(io, least) }
        stream.flush
      end
    rescue StandardError => e
      STDERR.write("memintro: MWRAP=#{ENV['MWRAP']}: #{e.message}\n")
    end
    private_class_method :dump
  end
end
