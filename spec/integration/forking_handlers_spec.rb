# frozen_string_literal: true

require "spec_helper"

# A signal handler may come upon anything, and may fork there: docs/design/waiting.md.
RSpec.describe "A signal handler that forks", :race do
  def fork_upon(what, way:) = native(program("forking_handlers.cc"), what, way: way, deadline_seconds: 20)

  # Both go on with the reading, read again, bear a thread that is recorded, and fork.
  went_on = { forks: 1, kept: 50, marked: 0, recorded: 1, of_thread: 1 }.freeze

  TruthDriver::WAYS.each do |way|
    %w[blocks sites].each do |reading|
      it "leaves a reading of #{reading} on top of which it forks to go on in both processes, #{way}" do
        figures = fork_upon(reading, way: way)
        expect(figures).to include(parent: { **went_on, grandchild: 50 }, child: { **went_on, grandchild: 50 })
        expect(figures).to include(status: 7, missed_frees: 0, dropped: 0)
      end
    end

    it "leaves the recording of a block on top of which it forks to end in both processes, #{way}" do
      figures = fork_upon("recording", way: way)
      expect(figures).to include(parent: { **went_on, grandchild: 51 }, child: { **went_on, grandchild: 51 })
      expect(figures).to include(status: 7, missed_frees: 0, dropped: 0)
    end
  end

  # Live only: there the hook's handler of forks comes before the program's, which waits for the other thread.
  it "gives no other thread's fork a part in its pause on top of half an event" do
    figures = fork_upon("both", way: :live)
    expect(figures).to include(parent: { **went_on, grandchild: 51 }, child: { **went_on, grandchild: 51 })
    # The other's child has whole figures.
    expect(figures).to include(status: 7, held_both: 0, other: 51, missed_frees: 0, dropped: 0)
  end
end

# The wait for a reading thread is longer than that for a recording one.
RSpec.describe "A thread that forks" do
  TruthDriver::WAYS.each do |way|
    it "waits for the end of another thread's reading, and its child has the figures, #{way}" do
      figures = native(program("forking_handlers.cc"), "beside", way: way, deadline_seconds: 20)
      expect(figures).to include(other: 50, missed_frees: 0, dropped: 0)
      expect(figures[:parent]).to include(forks: 0, kept: 50, marked: 0, grandchild: 50)
    end
  end
end
