# frozen_string_literal: true

require "spec_helper"

# Errors of a start that only another thread, or a process built in another way, can bring about.
RSpec.describe "An error of a start" do
  def answer(code, *arguments, **options)
    run_ruby(nil, *arguments, code: code, requires: %w[memintro fiddle json], **options).must_succeed.json
  end

  # A call's error, or nil.
  prelude = <<~'RUBY'
    said = lambda do |&call|
      call.call
      nil
    rescue StandardError => e
      [e.class.name, e.message]
    end
  RUBY

  it "is BusyError while another thread starts or stops, and the next one works" do
    code = <<~'RUBY'
      Memintro.track { $kept = Fiddle.malloc(1_000) }
      library = Fiddle.dlopen(ARGV.first)
      hold, let_go = %w[hold_a_start let_go].map do |name|
        Fiddle::Function.new(library[name], [], Fiddle::TYPE_INT, need_gvl: true)
      end
      held = hold.call
      busy = [said.call { Memintro.start }, said.call { Memintro.track { raise "ran" } }, said.call { Memintro.stop }]
      during = Memintro.tracking?
      status = let_go.call
      after = Memintro.tracking?
      later = [said.call { Memintro.stop }, said.call { Memintro.start }, said.call { Memintro.stop }]
      puts JSON.generate(held: held, busy: busy, during: during, status: status, after: after, later: later)
    RUBY
    message = "another thread is starting or stopping memintro; try again when it has finished"
    expect(answer(prelude + code, shared_module("held_start.c", flags: ["-ldl"])))
      .to eq(held: 1, busy: [["Memintro::BusyError", message]] * 3, during: false, status: 0, after: true,
             later: [nil, nil, nil])
  end

  it "is AllocatorError where no loaded module has the allocator's functions, and the program goes on" do
    code = <<~'RUBY'
      errors = Array.new(2) { said.call { Memintro.start } } << said.call { Memintro.track { raise "ran" } }
      puts JSON.generate(errors: errors, tracking: Memintro.tracking?, stop: Memintro.stop.live_bytes,
                         text: "x" * 100_000 == "x" * 100_000)
    RUBY
    hidden = answer(prelude + code, env: { "LD_PRELOAD" => shared_module("no_allocator.c", flags: ["-ldl"]) })
    message = "no module of this process defines malloc, calloc, realloc and free where memintro can find them " \
              "(a statically linked Ruby?); `memintro doctor` lists what is loaded"
    expect(hidden).to eq(errors: [["Memintro::AllocatorError", message]] * 3, tracking: false, stop: 0, text: true)
  end
end
