# frozen_string_literal: true

require_relative "../runtime/loader"
require_relative "../runtime/main_ractor"
require_relative "../support/arguments"

module Memintro
  # Methods that find the holders of objects. {Memintro} is extended with them.
  #
  # Methods that need all objects make a frozen copy of the process. The copy writes the objects, and `memintro-tool`
  # reads them in a process of its own. This process stops only while it is copied, and waits without Ruby's lock.
  # docs/holders.md has the costs.
  module Holding
    # Most objects in one call.
    MOST_OBJECTS = 10_000
    # Ways that lead only through the caller, such as the machine stack.
    OWN_WAYS = 4
    # Large objects that belong to the caller.
    OWN_OBJECTS = 20
    private_constant :MOST_OBJECTS, :OWN_WAYS, :OWN_OBJECTS

    # Finds the ways that hold all objects of a class, of a call site, of an age, or the given objects. Ways through
    # objects of the same classes and names are one group, so a million objects give a few lines. Objects must match
    # all given arguments.
    #
    # @param of [Class, String, Array, nil] a class or its name: its objects, without those of classes below it; or an
    #   Array of objects. A name may be any that {Memintro.histogram}, {Memintro.internals} or an answer has:
    #   `"imemo_callinfo"`, `"(singleton class)"`
    # @param site [String, nil] the line that made them, such as `"mailer.rb:12"`, or a file. Needs
    #   `Memintro.start(objects: true)`
    # @param older_than_gcs [Integer, nil] only objects that outlived this number of collections. Needs the same
    # @param top [Integer] groups
    # @param by [Symbol] `:bytes` or `:objects`: which ways come first
    # @param seconds [Integer] after which it is given up
    # @yieldparam objects [Integer] read so far, some times a second
    # @return [Holders]
    # @raise [HeapDumpError] if the heap could not be read, or no object fits, with the reason
    # @raise [ArgumentError] for `site` and `older_than_gcs`, while objects are not tracked
    # @raise [RactorError] in a Ractor other than the main one
    # @example
    #   puts Memintro.holders(Message)
    #   puts Memintro.holders(site: "mailer.rb:12", older_than_gcs: 3)
    def holders(of = nil, site: nil, older_than_gcs: nil, top: 10, by: :bytes, seconds: 600, &progress)
      MainRactor.only
      Loader.need(:HeapCopy, :Holders)
      Arguments.count(:top, top, least: 1, most: 1000)
      by = Arguments.choice(:by, by, Holders::BY)
      births = births(site, older_than_gcs)
      if of.nil? && births.empty?
        raise ArgumentError, "give a class, an Array of objects, site: or older_than_gcs:"
      end

      untracked do
        chosen = [*(selection(of) unless of.nil?), *births]
        options = ["--top=#{top}", "--by=#{by}", "--with-text"]
        Holders.new(*ask_tool("holders", chosen, seconds, *options, births: births.any?, &progress))
      end
    end

    # Lists the objects that keep most memory alive: their class, retained bytes, own bytes, and way to a root. The
    # list may contain an object and its dominator. Lasting objects, such as classes, modules, live threads and the
    # VM's own objects, are left out unless `all` is true.
    #
    # @param count [Integer] objects
    # @param by [Symbol] `:retained_bytes`, or `:bytes`: their own bytes, which lists all objects
    # @param all [Boolean] whether to list lasting objects as well
    # @param seconds [Integer] after which it is given up
    # @return [List<LargeObject>] without memintro itself
    # @raise [HeapDumpError, RactorError]
    # @example
    #   puts Memintro.largest(3)   # 17.5 MiB retained (40 bytes of its own): Hash, held by Cache::STORE
    def largest(count = 10, by: :retained_bytes, all: false, seconds: 600)
      MainRactor.only
      Loader.need(:HeapCopy, :Holders)
      Arguments.count(:count, count, least: 1, most: 100_000)
      by = Arguments.choice(:by, by, %i[retained_bytes bytes])
      all = Arguments.flag(:all, all) ? ["--all"] : []
      untracked do
        answer, = ask_tool("top", [], seconds, "--top=#{count + OWN_OBJECTS}", "--by=#{by}", *all)
        List.new(Array(answer["rows"]).map { |row| LargeObject.new(row) }.reject(&:own?).first(count))
      end
    end

    # Lists the referrers of an object: other objects, then roots (of type `ROOT`, such as `$bus`).
    #
    # @param object [Object]
    # @param seconds [Integer]
    # @return [List<Holder>] without garbage, memintro itself, and objects that only the caller's machine stack holds
    # @raise [HeapDumpError, RactorError]
    # @example
    #   Memintro.referrers(message).map(&:to_s)   # => ["Array[7]"]
    def referrers(object, seconds: 600)
      MainRactor.only
      Loader.need(:HeapCopy, :Holders)
      untracked do
        answer, = ask_tool("referrers", address_of(object), seconds, "--top=10000")
        rows = Array(answer["referrers"]).reject { |row| row["only_machine_stack"] }
        List.new(rows.map { |row| Holder.new(row) }.reject(&:own?) + Holder.roots(answer))
      end
    end

    # Finds the ways from an object to the roots that keep it alive: the shortest first, and no two of them share a
    # holder.
    #
    # @param object [Object]
    # @param paths [Integer] how many
    # @param seconds [Integer]
    # @return [List<HeldPath>] without ways that lead only through the caller
    # @raise [HeapDumpError, RactorError]
    # @example
    #   puts Memintro.path_to_root(message, paths: 3)
    def path_to_root(object, paths: 1, seconds: 600)
      MainRactor.only
      Loader.need(:HeapCopy, :Holders)
      Arguments.count(:paths, paths, least: 1, most: 100)
      untracked do
        answer, = ask_tool("path", address_of(object), seconds, "--paths=#{paths + OWN_WAYS}")
        List.new(Array(answer["paths"]).map { |row| HeldPath.new(row) }.reject(&:own?).first(paths))
      end
    end

    # The bytes that would be free without the object: its own, and those of all objects that only it keeps alive.
    #
    # @param object [Object]
    # @param seconds [Integer]
    # @return [Integer] bytes, as Ruby counts them; 0 for values without a slot, such as small Integers
    # @raise [HeapDumpError, RactorError]
    # @example
    #   Memintro.retained_size(cache)   # => 18_400_160
    def retained_size(object, seconds: 600)
      MainRactor.only
      Loader.need(:HeapCopy)
      return 0 unless Native.heap_address(object)

      untracked { ask_tool("retained", address_of(object), seconds).first.fetch("retained_bytes") }
    end

    # Finds objects in the heap, garbage that is not collected yet included.
    #
    # @param class [Class, Module, nil] of this class or of one below it
    # @param min_bytes [Integer] with their memory outside of the heap, as Ruby counts it
    # @param where [Proc, nil] gets each object, and returns whether it matches. It must not change objects
    # @param limit [Integer] how many at most
    # @return [List<Object>]
    # @raise [BusyError, RactorError, UnknownRubyError]
    # @example
    #   Memintro.find(class: String, min_bytes: 1 << 20, where: ->(text) { text.encoding == Encoding::BINARY })
    def find(class: nil, min_bytes: 0, where: nil, limit: 100)
      MainRactor.only
      Loader.need(:List)
      wanted = binding.local_variable_get(:class)
      raise TypeError, "class is #{Arguments.shown(wanted)}; it must be a Class" unless wanted.nil? || Class === wanted

      Arguments.count(:min_bytes, min_bytes)
      Arguments.count(:limit, limit, least: 1, most: 10_000_000)
      found = untracked { Native.heap_find(wanted, min_bytes, where ? 100_000_000 : limit) }
      narrow(found, limit, where) if where
      # A word on a stack that still leads to the first array must not look like a holder.
      untracked { List.new(found).tap { found.clear } }
    end

    # Counts the slots of Ruby's heap by type, as `ObjectSpace.count_objects` does, the objects of the VM included.
    #
    # @return [Hash{Symbol => Integer}] `:T_STRING` and so on, and `:free`
    # @raise [BusyError, RactorError, UnknownRubyError]
    # @example
    #   Memintro.heap_counts[:T_STRING]   # => 182_640
    def heap_counts
      MainRactor.only
      untracked { Native.heap_counts.to_h.freeze }
    end

    # Lists the VM's own references: global variables, addresses that C code has registered, finalizers, threads, the
    # machine stack of the caller.
    #
    # @return [List<HeldValue>]
    # @raise [RactorError, UnknownRubyError]
    # @example
    #   Memintro.roots.select { |root| root.name&.start_with?("$") }
    def roots
      MainRactor.only
      Loader.need(:Holders)
      untracked { List.new(Native.heap_roots.map { |row| HeldValue.new(*row) }) }
    end

    # Lists references from stacks and registers of threads: local variables with their names, and words on machine
    # stacks that look like objects, as the collector treats them.
    #
    # @param threads [Array<Thread>] by default all that live
    # @return [List<HeldValue>]
    # @raise [RactorError, UnknownRubyError]
    # @example
    #   puts Memintro.stack_dump.grep(/local /)
    def stack_dump(threads = Thread.list)
      MainRactor.only
      Loader.need(:Holders)
      untracked do
        rows = threads.flat_map do |thread|
          stack_of(thread).map { |row| HeldValue.new("thread #{thread.native_thread_id}", *row.drop(1)) }
        end
        rows.concat(Native.heap_roots.filter_map { |row| HeldValue.new(*row) if row.first == "machine_context" })
        List.new(rows)
      end
    end

    private

    # Ruby 3.4 has the stack of a fiber that is an object with that, and not with its thread.
    def stack_of(thread)
      rows = Native.heap_children(thread)
      fibers = rows.select { |row| row[2] == "Fiber" }.map { |row| Native.heap_object(row[3], "Fiber") }
      fibers.compact.first(1).reduce(rows) { |all, fiber| all + (Native.heap_children(fiber) - all) }
    end

    # As {#holders}, for the objects at these addresses: the caller need not hold them.
    def holders_at(addresses, top:, seconds:)
      MainRactor.only
      Loader.need(:HeapCopy, :Holders)
      selection = addresses.map { |address| format("--address=0x%x", address) }
      untracked { Holders.new(*ask_tool("holders", selection, seconds, "--top=#{top}")) }
    end

    def narrow(found, limit, where)
      left = limit
      found.select! { |object| left.positive? && where.call(object) && (left -= 1) }
    end

    # @return [Array(Hash, Float)]
    def ask_tool(command, selection, seconds, *options, births: false, &progress)
      Arguments.count(:seconds, seconds, least: 1, most: 86_400)
      arguments = ["heap", command, "--json", *options, *selection, "-"]
      copy = HeapCopy.new(arguments, redaction: HeapCopy.default_redaction, seconds: seconds, births: births)
      [JsonText.parse(copy.answer(&progress)), copy.pause_ms]
    rescue JsonText::Invalid => e
      raise HeapDumpError, "the tool's answer is not JSON (#{e.message}); it may belong to another version of memintro"
    end

    # The selections that only tracked objects have.
    def births(site, older)
      site = Arguments.text(:site, site, optional: true)
      older = Arguments.count(:older_than_gcs, older, most: 4_000_000_000, optional: true)
      chosen = [*("--site=#{site}" if site), *("--older-than-gcs=#{older}" if older)]
      return chosen if chosen.empty? || Native.tracks_objects

      raise ArgumentError, "objects are not tracked, so their lines and ages are unknown: track them with " \
                           "#{Advice.pick('Memintro.start(objects: true)', 'memintro start PID --objects')}"
    end

    def selection(of)
      case of
      when String then ["--class=#{checked_name(of)}"]
      when Module then ["--class=#{class_name_of(of)}"]
      when Array
        if of.empty? || of.size > MOST_OBJECTS
          raise ArgumentError, "of has #{of.size} objects; it must have 1 to #{MOST_OBJECTS}: give their class instead"
        end

        of.flat_map { |object| address_of(object) }
      else
        raise TypeError, "of is #{Arguments.shown(of)}; it must be a class, the name of one, or an Array of objects"
      end
    end

    def checked_name(text)
      return text if !text.empty? && text.dup.force_encoding(Encoding::UTF_8).valid_encoding?

      raise ArgumentError, "of is #{Arguments.shown(text)}, which no class can be called; give the name of one"
    end

    # A class may define any `name`.
    def class_name_of(klass)
      name = Module.instance_method(:name).bind_call(klass)
      return name if name

      raise ArgumentError, "of is a class without a name; give an Array of its objects (Memintro.find finds them)"
    end

    def address_of(object)
      address = Native.heap_address(object)
      return [format("--address=0x%x", address)] if address

      raise ArgumentError, "#{Arguments.shown(object)} is no object of the heap: nothing holds it"
    end
  end
end
