# frozen_string_literal: true

# `MEMINTRO_GC_STRESS=1`: in the Ruby programs that specs start, the collector runs at every allocation for a
# second, once they have loaded what they need. What holds on to something that the collector may free or move shows
# itself then. The process that runs the specs is spared: it is not what is tested.
module GCStress
  CHILD = File.join(__dir__, "children", "gc_stress.rb")
  # For programs that call `stressed { … }`: it also exists without stress.
  UNDER_STRESS = "respond_to?(:stressed, true) or def stressed = yield"

  def run_ruby(*arguments, requires: ["memintro"], **options)
    super(*arguments, requires: [*requires, CHILD], **options)
  end
end

if ENV["MEMINTRO_GC_STRESS"] == "1"
  require_relative "subprocess"
  Subprocess.prepend(GCStress)
  Subprocess.singleton_class.prepend(GCStress)
end
