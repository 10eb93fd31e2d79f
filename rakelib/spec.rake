# frozen_string_literal: true

# The Ruby specs. They start child processes that load the built libraries, so they need `rake compile` first. Several
# files run at a time: two for each processor, because most of them wait, or as many as MEMINTRO_SPEC_JOBS says.
#
#   rake spec             what every change must pass; spec:beside and spec:alone are its two parts
#   rake spec:fast        those of a minute that measure nothing: spec/unit but one file, the API, exact figures
#   rake spec:gc_stress   the specs marked :vm again, with the collector run at every chance; those that are marked
#                         :vm_long, too, are left to spec:gc_stress_long
#   rake spec:long        the specs marked :long

all_specs = FileList["spec/{unit,integration}/**/*_spec.rb"]

# Loaded when specs run: other tasks need no `parallel`.
side_by_side = lambda do |task, *arguments, files: all_specs, **options|
  require_relative "spec/side_by_side"
  SideBySide.new(arguments, files: files.to_a, task: task.name.delete_prefix("spec:"), **options).run ||
    abort("specs have failed")
end

desc "Run the specs, all but the long ones"
task spec: :compile do |task|
  side_by_side[task, "--tag", "~long"]
end

namespace :spec do
  desc "Run those that measure nothing and may run beside anything"
  task beside: :compile do |task|
    side_by_side[task, "--tag", "~long", parts: ["beside"]]
  end

  desc "Run those that measure time, one after the other"
  task alone: :compile do |task|
    side_by_side[task, "--tag", "~long", parts: ["alone"]]
  end

  desc "Run the specs that find most mistakes in little time"
  task fast: :compile do |task|
    names = %w[api call_sites command inert native_truth ruby_truth].map { |name| "#{name}_spec.rb" }
    quick = all_specs.select { |file| file.start_with?("spec/unit/") || names.include?(File.basename(file)) }
    # It tries thousands of damaged snapshots, and takes by far the longest of spec/unit.
    quick -= ["spec/unit/snapshot_shape_spec.rb"]
    side_by_side[task, "--tag", "~long", files: quick, parts: ["beside"]]
  end

  stressed = lambda do |task, *tags|
    marked = all_specs.select { |file| File.read(file).match?(/(?<!:):vm\b|\bvm: /) }
    side_by_side[task, *tags, "--tag", "~long", files: marked, env: { "MEMINTRO_GC_STRESS" => "1" }]
  end

  desc "Run the specs that touch the VM, under GC.stress"
  task(gc_stress: :compile) { |task| stressed[task, "--tag", "vm", "--tag", "~vm_long"] }

  desc "Run under GC.stress what tests the kernel, the C library or a command in a program of Ruby's"
  task(gc_stress_long: :compile) { |task| stressed[task, "--tag", "vm_long"] }

  desc "Run the long specs"
  task long: :compile do
    sh "rspec", "--format", "progress", "--tag", "long"
  end
end
