# frozen_string_literal: true

require_relative "../error"
require_relative "../support/files"
require_relative "../support/json_text"
require_relative "../support/output_target"
require_relative "parts"
require_relative "../support/native"

module Memintro
  class Snapshot
    # Snapshots as files: JSON with a layout number. Files hold data and no code, so a file from an unknown source can
    # be refused but cannot do harm.
    module Saved
      # See {Parts}.
      LAYOUT = Parts::LAYOUT
      # Lists of rows.
      LISTS = %i[types classes internals].freeze
      # Bytes that are read first, to check whether the file can be a snapshot.
      FIRST = 4096
      # Most bytes that are read from a pipe or a device, which may be endless.
      MOST = 1 << 30
      # Text that may precede JSON: white space, and the byte order mark that some editors write.
      BEGINNING = /\A(?:\xEF\xBB\xBF)?[ \t\r\n]*(?=\{)/n
      private_constant :LISTS, :FIRST, :MOST, :BEGINNING

      # @param snapshot [Snapshot]
      # @return [String]
      def self.text(snapshot)
        # `version` is the layout of a report, which has the same `process`, `totals` and `call_sites`.
        layouts = { memintro_snapshot: LAYOUT, version: CallSites::LAYOUT }
        JsonText.dump({ **layouts, **snapshot.to_h }, exact: true) << "\n"
      end

      # @param path [String]
      # @param text [String]
      # @return [nil]
      # @raise [SnapshotError]
      def self.write(path, text)
        # Renaming a file over /dev/null, a named pipe or a folder would destroy it.
        OutputTarget.replaceable?(File.absolute_path(path)) ? replace(path, text) : write_into(path, text)
        nil
      rescue SystemCallError, IOError, ArgumentError, EncodingError, Error => e
        raise SnapshotError, "#{named(path)} cannot be written: #{reason(e)}"
      end

      # @param path [String]
      # @return [Snapshot]
      # @raise [SnapshotError]
      def self.read(path)
        snapshot(checked(content(path), named(path)), named(path))
      rescue SystemCallError, IOError, ArgumentError, EncodingError => e
        raise SnapshotError, "#{named(path)} cannot be read: #{reason(e)}"
      end

      # @param text [String] result of {text}
      # @param path [String] its name in errors
      # @return [Snapshot]
      # @raise [SnapshotError]
      def self.parse(text, path = "the snapshot")
        snapshot(checked(text.b, path), path)
      end

      def self.named(path)
        return "\"\" (a file without a name)" if path.empty?

        path.encoding.ascii_compatible? && !path.include?("\0") ? path : path.inspect
      end
      private_class_method :named

      # Does not read a file to its end if it cannot be a snapshot, because it may be endless.
      def self.content(path)
        File.open(path, "rb") do |file|
          text = file.read(FIRST).to_s
          return text unless text.match?(BEGINNING)

          rest = file.stat.file? ? file.read : file.read(MOST).to_s
          return text << rest if rest.bytesize < MOST || file.stat.file?

          raise SnapshotError, "#{named(path)} is not a snapshot of memintro: it is larger than #{Units.bytes(MOST)}"
        end
      end
      private_class_method :content

      # @return [String] the text, which is that of a snapshot of this layout
      def self.checked(text, path)
        raise SnapshotError, "#{path} is empty" if text.empty?

        start = text[BEGINNING] or
          raise SnapshotError, "#{path} is not a snapshot of memintro: its first bytes are different"

        text = text.byteslice(start.bytesize..) unless start.empty?
        layout, is_report = head(text, path)
        if layout.nil?
          likely = is_report ? "it is a report, which `memintro report` shows" : "it is other JSON"
          raise SnapshotError, "#{path} is not a snapshot of memintro: #{likely}"
        end
        return text if layout == LAYOUT.to_s

        raise SnapshotError, "#{path} has layout #{layout}, and memintro #{VERSION} reads layout #{LAYOUT}; use the " \
                             "version that wrote it, or a newer one"
      end
      private_class_method :checked

      def self.head(text, path)
        Native.snapshot_head(text)
      rescue ArgumentError
        damaged(text, path)
      end
      private_class_method :head

      def self.damaged(text, path)
        if text.b.start_with?("{\"memintro_snapshot\"")
          raise SnapshotError, "#{path} is a snapshot of memintro that was cut short or damaged"
        end

        raise SnapshotError, "#{path} is not a snapshot of memintro: it is not valid JSON"
      end
      private_class_method :damaged

      def self.snapshot(text, path)
        Snapshot.new(data(*Native::Report.read_snapshot(text)))
      rescue KeyError, NoMethodError, TypeError, ArgumentError, EncodingError, DumpError => e
        raise SnapshotError, "#{path} is a damaged snapshot of memintro: #{e.message.lines.first.to_s.chomp}"
      end
      private_class_method :snapshot

      def self.data(report, found)
        process = symbols(found["process"])
        sites = CallSites.from_report(report, process: process)
        report.clear
        sites.leave_out(found["call_sites_left_out"])
        sites.process.transform_values! { |value| value.is_a?(String) ? value.freeze : value }
        sites.process[:mode] = sites.process[:mode]&.to_sym
        { time: time(found["time"]), monotonic_s: found["monotonic_s"], sites: sites,
          memory: symbols(found["memory"]), account: symbols(found["account"]),
          account_private: symbols(found["account_private"]),
          cgroup: symbols(found["cgroup"]), gc: symbols(found["gc"]),
          gc_heaps: found["gc_heaps"]&.to_h { |pool, stat| [Integer(pool), symbols(stat)] },
          parts: found["parts"].map(&:to_sym), missing: symbols(found["missing"] || {}),
          **LISTS.to_h { |name| [name, rows(found[name.to_s])] }, iseqs: iseqs(found["iseqs"]),
          occupancy: symbols(found["occupancy"]) }
      end
      private_class_method :data

      def self.time(text)
        match = text.match(/\A(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?Z\z/)
        raise TypeError, "its time is #{Arguments.shown(text)}" unless match

        Time.utc(*match[1..6].map(&:to_i)).to_f + match[7].to_f
      end
      private_class_method :time

      def self.symbols(value)
        case value
        when Hash then value.to_h { |key, item| [key.to_sym, symbols(item)] }
        when Array then value.map { |item| symbols(item) }
        else value
        end
      end
      private_class_method :symbols

      def self.rows(list)
        list && Parts.rows(Parts.sorted(list.map { |row| [row["name"], row["count"], row["bytes"]] }))
      end
      private_class_method :rows

      def self.iseqs(found)
        found && { count: found["count"], bytes: found["bytes"],
                   paths: rows(found["paths"]), locations: rows(found["locations"]) }
      end
      private_class_method :iseqs

      def self.replace(path, text)
        Files.replace(path) do |file|
          file.write(text)
          file.fsync
        end
      end
      private_class_method :replace

      # Appends: a stream that the process has open would otherwise be overwritten from its beginning.
      def self.write_into(path, text)
        return OutputTarget.feed(path, text) if File.pipe?(path)

        File.open(path, File::WRONLY | File::APPEND) { |file| Files.bounded(file) { |io| io.write(text) } }
      end
      private_class_method :write_into

      def self.reason(error)
        error.message.sub(/ (?:@ \w+ )?- .*/m, "").sub(/ @ .*/m, "")
      end
      private_class_method :reason
    end
  end
end
