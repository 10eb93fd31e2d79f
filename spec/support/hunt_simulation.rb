# frozen_string_literal: true

# A server that is made of figures, and a clock that runs as fast as one likes: what a hunt of days takes, in a second.
module HuntSimulation
  # Time passes during waits. A look takes the given processor time.
  class FastClock
    attr_accessor :now, :cpu, :children_cpu
    attr_reader :waits

    def initialize
      @now = 1_000_000.0
      @begun = @now
      @cpu = @children_cpu = 0.0
      @waits = []
    end

    def time = Time.at(1_800_000_000 + @now - @begun)
    def minutes = (@now - @begun) / 60

    def wait(stop, seconds)
      @waits << seconds
      @now += seconds
      stop.requested?
    end
  end

  # Ends a hunt after a number of simulated minutes.
  class Until
    def initialize(clock, minutes)
      @clock = clock
      @minutes = minutes
    end

    def requested? = @clock.minutes >= @minutes
  end

  MIB = 1 << 20

  # Figures of a process over time, in place of {Memintro::Hunt::Watch}. Each is a block that is given the minute; its
  # garbage is what {collect} frees.
  class Server
    attr_accessor :rss
    attr_reader :collections

    def initialize(clock, seed, look_cpu: 0.02)
      @clock = clock
      @random = Random.new(seed)
      @figures = {}
      @look_cpu = look_cpu
      @rss = 200 * MIB
      @collections = 0
      @load = ->(_) { 100_000 }
    end

    def load(&load) = @load = load
    def first_load = @reads == 1 ? nil : @load.call(@clock.minutes)
    def figure(*key, &figure) = @figures[key] = figure
    def collected_at = @collected_at || 0

    def own = yield

    def age = nil

    def collect
      @collected_at = @clock.minutes
      @collections += 1
    end

    def read(minute)
      at = @clock.minutes
      @clock.cpu += @look_cpu
      @reads = @reads.to_i + 1
      figures = @figures.transform_values { |figure| figure.call(at) }
      Memintro::Hunt::Watch::Reading.new(minute: minute, load: first_load, rss: @rss, figures: figures,
                                         partial: false)
    end

    # Noise by which a value differs from the one before and takes the difference back slowly.
    def noise(deviation, memory = 0.0)
      last = 0.0
      lambda do
        last = (memory * last) + (Math.sqrt(1 - (memory**2)) * deviation * gauss)
      end
    end

    def gauss
      Math.sqrt(-2 * Math.log(1 - @random.rand)) * Math.cos(2 * Math::PI * @random.rand)
    end

    def rand(...) = @random.rand(...)

    # A server that does not leak: traffic that varies with the day, objects in step with it, garbage that waits for
    # the next great collection, a start that takes minutes, caches that fill up, and peaks that the allocator keeps.
    def healthy
      busy = ->(at) { 1 - (0.6 * Math.cos(2 * Math::PI * (at - 240) / 1_440)) }
      jitter = noise(0.05)
      load { |at| 100_000 * busy.call(at) * (1 + jitter.call) }
      steady_figures
      busy_figures(busy)
      filling_figures
      garbage_figures(busy)
      peak(busy)
      self
    end

    private

    def steady_figures
      6.times do |i|
        wobble = noise(MIB * (0.05 + rand(0.5)), i * 0.18)
        figure(:class, "Steady#{i}") { (20 * MIB) + wobble.call }
      end
      walk = 0.0
      figure(:class, "Wandering") { (15 * MIB) + (walk = (0.98 * walk) + (0.2 * MIB * gauss)) }
    end

    def busy_figures(busy)
      late = noise(0.3 * MIB, 0.9)
      figure(:class, "Session") { |at| (25 * MIB * busy.call(at - 15)) + late.call }
      bytes = noise(0.5 * MIB, 0.5)
      figure(:class, "Buffer") { |at| (10 * MIB * busy.call(at)) + bytes.call }
    end

    # A start, and caches: one that is full after some minutes, and one that meets more and more of what it has already.
    def filling_figures
      slow = 1.5 + rand(2.5)
      wobble = noise(0.1 * MIB)
      figure(:class, "Loaded") { |at| (60 * MIB * (1 - Math.exp(-at / slow))) + wobble.call }
      begun = rand(600)
      full = begun + 2 + rand(3.0)
      figure(:class, "Bounded") { |at| 12 * MIB * ((at - begun) / (full - begun)).clamp(0, 1) }
      known = 2 + rand(3.0)
      figure(:class, "Memo") { |at| 30 * MIB * (1 - Math.exp(-[at - begun, 0].max / known)) }
      figure(:iseqs, "views") { |at| 20 * MIB * (1 - Math.exp(-at / slow)) }
    end

    def garbage_figures(busy)
      period = 15 + rand(60.0)
      rate = 0.1 + rand(0.4)
      last = 0.0
      old = noise(0.05 * MIB)
      figure(:class, "String") do |at|
        last = [last, collected_at].max
        last = at if at - last > period
        (40 * MIB) + (rate * MIB * (at - last) * busy.call(at)) + old.call
      end
    end

    # Malloc's heap: it keeps what the greatest peak has needed.
    def peak(busy)
      highest = 0
      figure(:outside, "malloc") do |at|
        highest = [highest, 40 * MIB * busy.call(at) * (1 + (0.05 * gauss)), 60 * MIB * (1 - Math.exp(-at / 3))].max
        (50 * MIB) + highest.round(-5)
      end
    end
  end

  # In place of {Memintro::Hunt::Tracker}: tracks nothing.
  class NoTracker
    attr_reader :begun, :ended

    def initialize
      @begun = []
      @ended = 0
    end

    def start_tracking(classes) = @begun << classes
    def stop_tracking = @ended += 1
    def lines = {}
    def fastest(*) = nil
    def words = "nothing"
    def stack(_) = []
  end

  # Replaces {Memintro::Hunt::Inquiry}, and asks no process.
  class NoInquiry
    def note_stacks = nil
    def about(kind, name, *) = { what: name, kind: kind, notes: [] }
    def again(*) = {}
  end

  # @return [Array(Memintro::Hunt, Server, FastClock)] after this number of simulated minutes
  def simulate(minutes, seed: 1, every: 60, logger: File.open(File::NULL, "w"), on_finding: nil, **options)
    clock = FastClock.new
    server = Server.new(clock, seed, **options)
    yield server
    hunt = Memintro::Hunt.new(every: every, logger: logger, on_finding: on_finding, clock: clock, watch: server,
                              tracker: NoTracker.new, inquiry: NoInquiry.new)
    stop = Until.new(clock, minutes)
    loop do
      hunt.look(stop)
      break if clock.wait(stop, hunt.pause)
    end
    [hunt, server, clock]
  end
end
