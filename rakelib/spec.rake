# frozen_string_literal: true

# The Ruby specs. They start child processes that load the built libraries, so they need `rake compile` first.
#
#   rake spec             what every change must pass
#   rake spec:gc_stress   the specs marked :vm again, with the collector run at every chance
#   rake spec:long        the specs marked :long

rspec = ->(*arguments, **env) { sh env.transform_keys(&:to_s), "rspec", "--format", "progress", *arguments }

desc "Run the specs, all but the long ones"
task spec: :compile do
  rspec["--tag", "~long"]
end

namespace :spec do
  desc "Run the specs that touch the VM, under GC.stress"
  task gc_stress: :compile do
    rspec["--tag", "vm", "--tag", "~long", MEMINTRO_GC_STRESS: "1"]
  end

  desc "Run the long specs"
  task long: :compile do
    rspec["--tag", "long"]
  end
end
