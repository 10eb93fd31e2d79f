# frozen_string_literal: true

# Required last by programs that run under GC stress. A collection takes a millisecond, so a program of a second's
# work would run for an hour: the stress ends after so many collections, on a slow machine after a second, and the
# program goes on.
GC_STRESS_COLLECTIONS = 400
GC_STRESS_SECONDS = 1

# The program's first `Memintro.start` takes 700 collections by itself, so it would leave none to what follows. It is
# stressed where MEMINTRO_SPEC_STRESSED_START says so, and in programs that load memintro themselves.
if defined?(Memintro) && !ENV["MEMINTRO_SPEC_STRESSED_START"]
  Memintro.singleton_class.prepend(Module.new do
    def start(...)
      stress = GC.stress
      GC.stress = false
      super
    ensure
      GC.stress = stress
    end
  end)
end

# Ends it once it has lasted.
def end_gc_stress
  last = GC.count + (ENV["MEMINTRO_SPEC_STRESSED_START"] ? 1_000 : GC_STRESS_COLLECTIONS)
  (GC_STRESS_SECONDS * 50).times { GC.count < last ? sleep(0.02) : break }
  GC.stress = false
end

GC.stress = true
GC_STRESS_END = Thread.new { end_gc_stress }

# A child of fork has the stress, but not the thread that ends it.
Process.singleton_class.prepend(Module.new do
  def _fork
    super.tap do |pid|
      next unless pid.zero? && GC.stress

      GC.stress = false
      Thread.new do
        GC.stress = true
        end_gc_stress
      end
    end
  end
end)

# For programs that have ended it themselves, because what they prepare is too much for it: stress for what is tested.
# The block is run without it first, so that no code is loaded under it.
def stressed
  GC_STRESS_END.kill
  yield
  GC.stress = true
  yield
ensure
  GC.stress = false
end
