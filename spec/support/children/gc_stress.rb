# frozen_string_literal: true

# Required last by programs that run under GC stress. A collection takes a millisecond, so a program of a second's
# work would run for an hour: the stress ends after a second, and the program goes on.
GC_STRESS_SECONDS = 1

GC.stress = true
GC_STRESS_END = Thread.new do
  sleep(GC_STRESS_SECONDS)
  GC.stress = false
end

# A child of fork has the stress, but not the thread that ends it.
Process.singleton_class.prepend(Module.new do
  def _fork
    super.tap do |pid|
      next unless pid.zero? && GC.stress

      GC.stress = false
      Thread.new do
        GC.stress = true
        sleep(GC_STRESS_SECONDS)
        GC.stress = false
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
