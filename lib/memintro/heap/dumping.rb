# frozen_string_literal: true

require_relative "../runtime/loader"
require_relative "../runtime/main_ractor"
require_relative "../support/arguments"

module Memintro
  # The method that writes a dump of the heap. {Memintro} is extended with it.
  module Dumping
    # Compressions by the end of a file's name.
    COMPRESSIONS = { ".gz" => "gzip", ".zst" => "zstd" }.freeze
    # Values of `compress`.
    CHOICES = %i[auto plain gzip zstd].freeze
    private_constant :COMPRESSIONS, :CHOICES

    # Writes all objects of Ruby's heap into a file, one line of JSON each, with the fields of `ObjectSpace.dump_all`;
    # heapy, sheap and harb read it. A frozen copy of the process writes it; this one stands still only while it is
    # copied (`pause_ms`; some 10 ms for each GiB), and waits without Ruby's lock. docs/heap_dump.md has the fields.
    #
    # The file appears when it is complete; after a failure, an earlier file of that name stays. Only its owner may
    # read it. A symbolic link is not followed.
    #
    # @param path [String, #to_path]
    # @param compress [Symbol] `:plain`, `:gzip`, `:zstd`, or `:auto`: as the name ends in .gz or .zst
    # @param redact [Boolean, nil] replace the contents of strings by their length and a hash; nil: yes, unless at
    #   least one of RAILS_ENV, RACK_ENV and APP_ENV is set, and each set one is `development` or `test`
    # @param seconds [Integer] time limit
    # @yieldparam objects [Integer] written so far, some times a second
    # @return [Hash{Symbol => Object}] `path`, `objects`, `bytes`, `uncompressed_bytes`, `compression`, `redacted`,
    #   `pause_ms`, `unread_types` (types of C extensions whose references could not be read)
    # @raise [HeapDumpError] if it could not be written, with the reason
    # @raise [RactorError] in a Ractor other than the main one
    # @example
    #   Memintro.heap_dump("/tmp/app.ndjson.zst")[:objects]   # => 1_268_402
    def heap_dump(path, compress: :auto, redact: nil, seconds: 600, &progress)
      MainRactor.only
      Loader.need(:HeapCopy, :Files)
      compress = Arguments.choice(:compress, compress, CHOICES)
      redaction = redaction_of(redact)
      Arguments.count(:seconds, seconds, least: 1, most: 86_400)
      path = Arguments.text(:path, path)
      untracked { write_dump(file_of_dump(path), compress, redaction, seconds, &progress) }
    end

    private

    def file_of_dump(path)
      Files.absolute(path)
    rescue Error => e
      raise HeapDumpError, e.message
    end

    def redaction_of(redact)
      return HeapCopy.default_redaction if redact.nil?

      Arguments.flag(:redact, redact) ? HeapCopy::REDACTIONS : []
    end

    def write_dump(path, compress, redaction, seconds, &progress)
      compress = COMPRESSIONS.fetch(File.extname(path), "plain") if compress == :auto
      copy = HeapCopy.new(["heap-write", path, compress.to_s], redaction: redaction, seconds: seconds,
                                                               births: :tried)
      written = JsonText.parse(copy.answer(&progress))
      { path: path, objects: written.fetch("objects"), bytes: written.fetch("bytes"),
        uncompressed_bytes: written.fetch("uncompressed_bytes"), compression: compress.to_sym, redacted: redaction.any?,
        pause_ms: copy.pause_ms, unread_types: copy.unread_types }
    end
  end
end
