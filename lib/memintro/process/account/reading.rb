# frozen_string_literal: true

require_relative "../../support/allocators"
require_relative "../../support/copy_end"
require_relative "../../support/names"
require_relative "../../support/paths"
require_relative "figures"
require_relative "row"

module Memintro
  class Account
    # Makes rows of the figures of a frozen copy of this process.
    # @api private
    class Reading
      # Times that a copy is made again, because another thread was in malloc at its instant.
      TRIES = 3
      # Most rows of each list in details.
      MOST = 20
      # Least bytes of the last class of free pieces in bins, which has no end.
      LARGEST_CLASS = 1 << 20
      IMEMO = "imemo_"
      # The sum of the stages that a copy has come to, without and with call sites.
      STAGES_WITHOUT_SITES = 3
      STAGES = 7
      # Places of numbers in a line of a type.
      SAID = 1
      FOUND = 2
      # What a copy takes at least: its tables, a page table for each 512 pages, and 4 bits for each block of 32 bytes.
      LEAST_ROOM = 8 << 20
      PAGE_TABLES = 512
      BLOCKS = 64
      private_constant :TRIES, :MOST, :IMEMO, :STAGES_WITHOUT_SITES, :STAGES, :SAID, :FOUND, :LEAST_ROOM,
                       :PAGE_TABLES, :BLOCKS

      # @param ruby [Boolean] with Ruby's heap
      # @param pagemap [Boolean]
      # @param seconds [Integer] after which a copy is given up
      # @param cgroup [Cgroup, nil]
      # @return [Account]
      # @raise [AccountError]
      def self.take(ruby:, pagemap:, seconds:, cgroup: nil)
        refuse_near_limit(cgroup)
        figures = shared = pause = allocator = signal = nil
        TRIES.times do
          text, _, pause, allocator, signal = Native.account(ruby, pagemap, seconds)
          figures, shared = Figures.both(text)
          break if whole_instant?(figures, ruby) && !CopyEnd.crash?(signal)
        end
        name, own = allocator
        shared = shared && new(shared, nil, pause, name, {})
        new(figures, signal, pause, name, own.to_h, shared).account(ruby: ruby)
      end

      # Whether no other thread stood in the way: in malloc, or recording what it does there.
      def self.whole_instant?(figures, ruby)
        return false unless figures.sum("busy").zero? || figures.all("broken").empty?

        !ruby || !Native.tracking? || figures.sum("stage") != STAGES_WITHOUT_SITES
      end
      private_class_method :whole_instant?

      # Where the container is about to be full, the kernel could end the program for what the copy takes.
      def self.refuse_near_limit(cgroup)
        room = cgroup&.distance_bytes
        return if room.nil?

        need = LEAST_ROOM + (Native.rss / PAGE_TABLES) + (Native.rss / BLOCKS)
        return if room >= need

        raise AccountError, "the container's memory is full but for #{Units.bytes([room, 0].max)} (#{cgroup.path}), " \
                            "and the copy of this process that counts may take #{Units.bytes(need)}: the kernel " \
                            "could end the program for it. ProcessMemory reads figures without a copy"
      end
      private_class_method :refuse_near_limit

      # @param figures [Figures]
      # @param signal [Integer] that ended the copy, or 0
      # @param pause [Float] milliseconds for which Ruby stood still
      # @param allocator [Symbol]
      # @param own [Hash{Symbol => Integer}] what the allocator says
      # @param shared [Reading, nil] of pages that are shared, alone
      def initialize(figures, signal, pause, allocator, own, shared = nil)
        @figures = figures
        @signal = signal
        @pause = pause
        @allocator = allocator
        @own = own
        @shared = shared
        @notes = []
      end

      # @param ruby [Boolean]
      # @return [Account]
      # @raise [AccountError]
      def account(ruby: true)
        unless sum("stage").positive?
          raise AccountError, "the copy of this process that was to count its memory #{CopyEnd.said(@signal)} before " \
                              "it had counted. ProcessMemory reads figures without a copy"
        end

        @ruby = ruby
        count_malloc
        bytes = balanced(amounts)
        note_troubles
        shared = @shared&.of_shared_pages || {}
        rows = NAMES.map do |name|
          of_row = shared[name]&.clamp(0, bytes.fetch(name))
          Row.new(name, bytes.fetch(name), basis(name), details(name), shared_bytes: of_row)
        end
        Account.new(rss: sum("rss"), rows: rows, notes: @notes, allocator: @allocator, pause_ms: @pause.round(2),
                    unfinished: unfinished)
      end

      # @return [Hash{Symbol => Integer}, nil] bytes of each row whose pages are known, if the copy came to its end
      def of_shared_pages
        return if sum("stage") < STAGES_WITHOUT_SITES

        count_malloc
        bytes = balanced(amounts)
        # Which pages are another allocator's is not known.
        @allocator == :glibc ? bytes : bytes.slice(:ruby_heap_live, :ruby_heap_free, :thread_stacks, :mapped_files)
      end

      # @return [Hash{Symbol => Integer}, nil] of pages of Ruby's heap that are this process's own, where some memory is
      #   shared
      def own_pages
        all, pages, with_free, old, young = @figures.all("own_pages").first
        all && { heap_pages: all, pages: pages, with_free_slots: with_free, old_objects: old, young_objects: young }
      end

      private

      def sum(key, place = 0)
        @figures.sum(key, place)
      end

      # @return [String, nil] what the copy had not done when it ended
      def unfinished
        if sum("stage") < STAGES_WITHOUT_SITES
          "This account is not whole: the copy that counted #{CopyEnd.said(@signal)} before it knew what Ruby's " \
            "objects own, which counts as malloc_native here. Ask again"
        elsif CopyEnd.crash?(@signal)
          "This account is not whole: the copy that counted #{CopyEnd.said(@signal)} before it knew " \
            "#{@shared ? 'what is shared with other processes' : 'the call sites of each row'}. Ask again"
        end&.then { |sentence| "#{sentence}; if it stays so, a C extension may have damaged memory." }
      end

      # Resident bytes of malloc, in use and free, and what else is anonymous.
      def count_malloc
        cached = sum("tcache", 2) + sum("fast", 1)
        @used = [sum("arena", 2) + sum("mmapped", 2) - cached, 0].max
        @free = sum("arena", 3) + sum("arena", 4) + cached
        @used_size = sum("arena", 5) + sum("mmapped", 1) - sum("tcache", 3) - sum("fast", 2)
        @anonymous = sum("anonymous") + sum("other")
        add_allocator unless @allocator == :glibc
      end

      # Only sums of another allocator are known, and not which pages are its own.
      def add_allocator
        anonymous = sum("anonymous")
        held = Allocators::ALL[@allocator]&.held
        return unless held && @own.key?(held.keys.first)

        size = held.sum { |figure, factor| @own[figure].to_i * factor }

        pool = [size, anonymous].min
        allocated = @own[:allocated] || [pool - free_of_thread, 0].max
        in_use = [allocated, pool].min
        @used += in_use
        @used_size += allocated
        @free += pool - in_use
        @anonymous -= pool
      end

      # mimalloc tells of the heap of the thread that asks, and of no other one.
      def free_of_thread
        [@own[:thread_committed].to_i - @own[:thread_allocated].to_i, 0].max
      end

      # What Ruby's objects own, of what is resident: the blocks that were found, or else what Ruby says.
      def owned
        rows = @figures.all("imemo").partition { |row| row.last == "imemo_iseq" || row.last == "iseq" }
        internal, objects = @figures.all("type").partition { |row| row.last == "T_ICLASS" }
        lists = { malloc_ruby_objects: objects, malloc_iseqs: rows[0], malloc_internal: rows[1] + internal }
        return lists.transform_values { |list| list.sum { |row| row[FOUND] } } if searched?

        bytes = lists.transform_values { |list| list.sum { |row| row[SAID] } }
        all = [bytes.values.sum, 1].max
        # Not all pages of all blocks are resident; and what Ruby counts may be more than malloc has.
        @share = [@used_size.positive? ? [@used.fdiv(@used_size), 1.0].min : 0.0, @used.fdiv(all)].min
        bytes.transform_values { |figure| (figure * @share).floor }
      end

      # Compiled code of memintro's own files, which counts as memintro's.
      def own_code
        @own_code ||= searched? ? sum("own_code", FOUND) : (sum("own_code", SAID) * @share).floor
      end

      # Whether blocks of objects were looked for by pointers. Only where malloc's chunks are known.
      def searched?
        sum("searched").positive? && sum("glibc").positive? && @allocator == :glibc
      end

      def amounts
        found = owned
        { ruby_heap_live: sum("heap_live"), ruby_heap_free: sum("heap_free") + sum("heap_empty", 1), **found,
          malloc_native: @used - found.values.sum, malloc_free: @free, thread_stacks: sum("stack", 1),
          mapped_files: sum("file") + sum("bss") - own_files, anonymous: @anonymous,
          malloc_iseqs: found[:malloc_iseqs] - own_code, memintro: own_files + sum("own") + own_code }
      end

      # The kernel says how much there is. What was counted twice or not at all is a trifle, and stands as such.
      def balanced(bytes)
        rest = sum("rss") - bytes.values.sum
        %i[anonymous malloc_native malloc_free mapped_files ruby_heap_free].each do |name|
          break unless rest.negative?

          less = [-rest, bytes[name]].min
          bytes[name] -= less
          rest += less
        end
        bytes.merge(unattributed: rest)
      end

      def own_files
        @own_files ||= [*@figures.all("file"), *@figures.all("bss")].sum { |row| own?(row.last) ? row[0] : 0 }
      end

      def own?(path)
        path = path.delete_suffix(" (deleted)")
        [Paths::EXTENSION, Paths::HOOK].include?(File.basename(path)) && path.include?("memintro")
      end

      def note_troubles
        if sum("pagemap").zero?
          @notes << "the kernel does not show which pages are resident; sums of mappings are exact, and parts within " \
                    "one are estimated"
        end
        broken = @figures.all("broken")
        unless broken.empty?
          @notes << "malloc's memory could not be read to its end in #{broken.size} places " \
                    "(#{broken.map(&:last).uniq.join(', ')}): a block was written beyond its end, or another thread " \
                    "was in malloc"
        end
        note_inside
        note_objects
        @notes << "#{sum('lost')} lines of figures had no room: what they were about is unattributed" if sum("lost") > 0
        note_mapped
      end

      def note_inside
        return if inside_known?

        @notes << if @own.key?(:thread_allocated)
                    "the inside of #{@allocator} is known of the heap of the thread that asked alone: free memory of " \
                      "others counts as in use"
                  else
                    "the inside of #{@allocator} is not known: free memory counts as in use"
                  end
      end

      def note_objects
        if !@ruby
          @notes << "Ruby's heap was not asked for: what its objects own counts as malloc_native"
        elsif sum("stage") < STAGES_WITHOUT_SITES
          @notes << "Ruby's objects could not be asked for their sizes: what they own counts as malloc_native"
        end
        return if !Native.tracking? || !searched? || listed?

        @notes << "another thread was recording at that instant: the call sites of each row are not known. Ask again"
      end

      # Mapped blocks are found by their heads. glibc counts them: at the instant of the copy, or when it was asked.
      def note_mapped
        found, size = sum("mmapped", 0), sum("mmapped", 1)
        blocks, bytes = @figures.all("counted").first || @own.values_at(:mmaps, :mmap)
        return if @allocator != :glibc || bytes.nil? || (bytes - size).abs <= [size / 20, 4 << 20].max

        @notes << "malloc says that it has #{blocks} mapped blocks of #{Units.bytes(bytes)}, and " \
                  "#{found} of #{Units.bytes(size)} were found"
      end

      def inside_known?
        @allocator == :glibc ? sum("glibc").positive? : @own.key?(:allocated)
      end

      # Rows that need the objects' blocks.
      SHARED = %i[malloc_ruby_objects malloc_iseqs malloc_internal malloc_native].freeze
      WHOLE = %i[mapped_files].freeze
      ALLOCATORS = %i[malloc_free anonymous].freeze
      private_constant :SHARED, :WHOLE, :ALLOCATORS

      def basis(name)
        return :estimated if sum("pagemap").zero? && !WHOLE.include?(name)

        derived = (SHARED.include?(name) && !searched?) || (@allocator != :glibc && ALLOCATORS.include?(name))
        derived ? :derived : :measured
      end

      def details(name)
        case name
        when :ruby_heap_live
          { pages: sum("heap_pages"), own_pages: @shared&.own_pages, at_fork: at_fork }.compact
        when :ruby_heap_free then { empty_pages: sum("heap_empty"), empty_bytes: sum("heap_empty", 1) }
        when :malloc_ruby_objects then { types: sizes("type"), call_sites: call_sites(2) }
        when :malloc_iseqs
          { iseqs: kinds { |kind| kind == "iseq" }.sum { |row| row[:count] }, call_sites: call_sites(3) }
        when :malloc_internal then { kinds: kinds { |kind| kind != "iseq" }, call_sites: call_sites(4) }
        when :malloc_native
          { in_use_bytes: @used, mmapped_blocks: sum("mmapped"), mmapped_bytes: sum("mmapped", 2),
            call_sites: call_sites(1), call_sites_of: listed? ? "malloc_native" : "all rows",
            free_told_apart: inside_known?, reached: reached }
        when :malloc_free then free_details
        when :thread_stacks then stacks
        when :mapped_files then { files: files }
        when :anonymous then { code_bytes: sum("code"), zero_bytes: sum("zero") }
        when :memintro then { library_bytes: own_files, code_bytes: own_code, table_bytes: sum("own") }
        else {}
        end
      end

      # Objects that there were when this process was forked, where its parent listened.
      def at_fork
        live, old = Native.objects_at_fork
        live && { live_objects: live, old_objects: old }
      end

      def free_details
        arenas = @figures.all("arena").map do |number, heaps, used, free, top, _size, pieces, _trim|
          { arena: number, heaps: heaps, used_bytes: used, free_bytes: free, top_bytes: top, free_pieces: pieces }
        end
        { arenas: arenas.size, allocator: @allocator.to_s, bins_bytes: sum("arena", 3), top_bytes: sum("arena", 4),
          trimmable_bytes: (sum("arena", 7) if @allocator == :glibc), tcache_bytes: sum("tcache", 2),
          tcaches: sum("tcache"), fast_bins_bytes: sum("fast", 1),
          inside_known: inside_known?,
          largest_arenas: arenas.max_by(MOST) { |arena| arena[:free_bytes] + arena[:top_bytes] }, allocator_says: @own,
          **free_pieces }
      end

      # What glibc's lists hold: how many pieces there are, and those of each size, the greatest sum first.
      def free_pieces
        { bins_pieces: sum("arena", 6), tcache_pieces: sum("tcache", 1), fast_bins_pieces: sum("fast"),
          bins: by_size("bin") { |least| { least_bytes: least, most_bytes: most_of_class(least) } },
          tcache: by_size("tcache_bin") { |size| { piece_bytes: size } },
          fast_bins: by_size("fast_bin") { |size| { piece_bytes: size } } }
      end

      def most_of_class(least) = ((least * 2) - 1 if least < LARGEST_CLASS)

      def by_size(key)
        rows = @figures.all(key).map { |size, pieces, bytes| { **yield(size), pieces: pieces, bytes: bytes } }
        rows.max_by(MOST) { |row| row[:bytes] }
      end

      # Whether the copy has told the call sites of each row.
      def listed?
        searched? && sum("stage") >= STAGES
      end

      # Who asked for the blocks of a row, by its number; nil while nothing is tracked. Where blocks have no known
      # owner, `malloc_native` has those of all blocks, and the others have none.
      def call_sites(row)
        return unless Native.tracking?
        return listed_sites(row) if listed?
        return unless row == 1

        Memintro.top(MOST, by: :live_bytes).map { |site| site_row(site.name, site.live_bytes, site.live_blocks) }
      rescue Error
        nil
      end

      def listed_sites(row)
        @figures.all("site").select { |found| found[0] == row }.map do |_, id, bytes, blocks|
          site_row(names_of_sites.fetch(id, "(unknown)"), bytes, blocks)
        end
      end

      def names_of_sites
        @names_of_sites ||= Native.site_names(@figures.all("site").map { |_, id| id }.uniq).to_h
      end

      def site_row(name, bytes, blocks)
        { name: Names.utf8(name), live_bytes: bytes, live_blocks: blocks }
      end

      # Kinds of stacks. Of fibers, how many have one: Ruby keeps stacks of fibers that have ended.
      def stacks
        found = @figures.all("stack").to_h { |count, bytes, kind| [:"#{kind}", { count: count, bytes: bytes }] }
        live, of_enumerators = @figures.all("fibers").first
        found[:fibers]&.merge!(live: live, of_enumerators: of_enumerators) if live
        found
      end

      # What objects lead to that their extensions do not tell Ruby of.
      def reached
        objects, blocks, bytes = @figures.all("reached_all").first
        return unless objects

        classes = @figures.all("reached").map do |count, of_class, resident, name|
          { name: Names.utf8(name), objects: count, blocks: of_class, bytes: resident }
        end
        { objects: objects, blocks: blocks, bytes: bytes, classes: classes }
      end

      def files
        sums = Hash.new(0)
        [*@figures.all("file"), *@figures.all("bss")].each { |row| sums[row.last] += row[0] unless own?(row.last) }
        sums.max_by(MOST, &:last).map { |path, bytes| { name: Names.utf8(path), bytes: bytes } }
      end

      def sizes(key)
        rows = @figures.all(key).map do |count, bytes, found, name|
          { name: Names.utf8(name), count: count, bytes: searched? ? found : (bytes * @share).floor }
        end
        rows.sort_by { |row| -row[:bytes] }.first(MOST)
      end

      def kinds
        sizes("imemo").each { |row| row[:name] = row[:name].delete_prefix(IMEMO) }.select { |row| yield row[:name] }
      end
    end
  end
end
