# frozen_string_literal: true

require_relative "../error"
require_relative "../files"
require_relative "../json_text"

module Memintro
  class Snapshot
    # Snapshots as files: JSON, with a number that says which layout it is. Data and never code: a file from a stranger
    # can at worst be refused.
    module Saved
      # Changes when a key changes its meaning or goes away.
      LAYOUT = 1
      # Lists of rows.
      LISTS = %i[types classes internals].freeze
      private_constant :LISTS

      # @param snapshot [Snapshot]
      # @return [String]
      def self.text(snapshot)
        # The second is the layout of a report, whose `process`, `totals` and `call_sites` are the same here.
        layouts = { memintro_snapshot: LAYOUT, version: Report::Json::LAYOUT }
        JsonText.dump({ **layouts, **snapshot.to_h }, exact: true) << "\n"
      end

      # @param path [String]
      # @param text [String]
      # @return [nil]
      # @raise [SnapshotError]
      def self.write(path, text)
        beside = "#{path}.#{Process.pid}.#{Thread.current.object_id}.tmp"
        made = false
        File.open(beside, File::WRONLY | File::CREAT | File::EXCL | File::NOFOLLOW, 0o600) do |file|
          made = true
          file.write(text)
          file.fsync
        end
        replace(beside, path)
        nil
      rescue SystemCallError, IOError => e
        Files.remove(beside) if made
        raise SnapshotError, "#{named(path)} cannot be written: #{reason(e)}"
      rescue Exception # rubocop:disable Lint/RescueException -- a signal or a Timeout must leave no half file
        Files.remove(beside) if made
        raise
      end

      # @param path [String]
      # @return [Snapshot]
      # @raise [SnapshotError]
      def self.read(path)
        text = File.binread(path).force_encoding(Encoding::UTF_8)
        snapshot(parsed(text, path), path)
      rescue SystemCallError, IOError, ArgumentError => e
        raise SnapshotError, "#{named(path)} cannot be read: #{reason(e)}"
      end

      # @param text [String] what {text} made
      # @param path [String] what to call it in errors
      # @return [Snapshot]
      # @raise [SnapshotError]
      def self.parse(text, path = "the snapshot")
        snapshot(parsed(text.dup.force_encoding(Encoding::UTF_8), path), path)
      end

      def self.named(path)
        path.empty? ? "\"\" (a file without a name)" : path
      end
      private_class_method :named

      def self.parsed(text, path)
        raise SnapshotError, "#{path} is empty" if text.empty?
        raise SnapshotError, "#{path} is no snapshot of memintro: it does not begin as one" unless text.start_with?("{")

        Loading.json
        damaged(text, path) unless text.valid_encoding?
        begin
          JsonText.restore(JSON.parse(text))
        rescue JSON::ParserError, EncodingError
          damaged(text, path)
        end
      end
      private_class_method :parsed

      def self.damaged(text, path)
        if text.b.start_with?("{\"memintro_snapshot\"")
          raise SnapshotError, "#{path} is a snapshot of memintro that was cut short or damaged"
        end

        raise SnapshotError, "#{path} is no snapshot of memintro: it is not valid JSON"
      end
      private_class_method :damaged

      def self.snapshot(found, path)
        layout = found["memintro_snapshot"]
        raise SnapshotError, "#{path} is no snapshot of memintro: #{likely(found)}" if layout.nil?

        unless layout == LAYOUT
          raise SnapshotError, "#{path} is a snapshot of layout #{Arguments.shown(layout)}, and memintro #{VERSION} " \
                               "reads layout #{LAYOUT}; read it with the memintro that wrote it, or a newer one"
        end

        Snapshot.new(data(found))
      rescue KeyError, NoMethodError, TypeError, ArgumentError, DumpError => e
        raise SnapshotError, "#{path} is a damaged snapshot of memintro: #{e.message.lines.first.to_s.chomp}"
      end
      private_class_method :snapshot

      def self.likely(found)
        found.key?("call_sites") ? "it is a report, which `memintro report` shows" : "it is other JSON"
      end
      private_class_method :likely

      def self.data(found)
        Loading.need(:Reader, within: Report)
        sites = Report::Reader.from_json(found)
        sites.left_out = number(found.fetch("call_sites_left_out"))
        sites.rows.each { |row| [*row[4..10], *row[11]].each { |figure| number(figure) } }
        sites.totals.to_h.each { |name, figure| number(figure) unless name == :estimated }
        sites.process.transform_values! { |value| value.is_a?(String) ? value.freeze : value }
        sites.process[:mode] = sites.process[:mode]&.to_sym
        { time: time(found.fetch("time")), monotonic_s: number(found.fetch("monotonic_s")), sites: sites,
          memory: symbols(found.fetch("memory")), cgroup: symbols(found["cgroup"]), gc: symbols(found.fetch("gc")),
          gc_heaps: found["gc_heaps"]&.to_h { |pool, stat| [Integer(pool), symbols(stat)] },
          parts: found.fetch("parts").map(&:to_sym), missing: symbols(found["missing"] || {}),
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
        list && Parts.rows(Parts.sorted(list.map do |row|
          [row.fetch("name"), number(row.fetch("count")), row["bytes"] && number(row["bytes"])]
        end))
      end
      private_class_method :rows

      # What is no number would be found out much later, by whoever computes with it.
      def self.number(value)
        value.is_a?(Numeric) ? value : raise(TypeError, "#{Arguments.shown(value)} is not a number")
      end
      private_class_method :number

      def self.iseqs(found)
        found && { count: number(found.fetch("count")), bytes: number(found.fetch("bytes")),
                   paths: rows(found["paths"]), locations: rows(found["locations"]) }
      end
      private_class_method :iseqs

      # To rename something over /dev/null, a named pipe or a folder would be a disaster.
      def self.replace(beside, path)
        return File.rename(beside, path) if File.file?(path) || !File.exist?(path)

        raise Errno::EISDIR if File.directory?(path)

        File.open(path, File::WRONLY) { |file| file.write(File.binread(beside)) }
        Files.remove(beside)
      end
      private_class_method :replace

      def self.reason(error)
        error.message.sub(/ (?:@ \w+ )?- .*/m, "").sub(/ @ .*/m, "")
      end
      private_class_method :reason
    end
  end
end
