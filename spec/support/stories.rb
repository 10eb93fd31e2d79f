# frozen_string_literal: true

# The required first line of an answer for each story of spec/fixtures/scripts/stories.rb.
module HeldStories
  # By letter: the class, and the guilty holder.
  ALL = {
    a: ["Message",
        /\A500 of 500 Message \([^)]+\): Archive\#@recent \(Array\) ← .*Bus\#@subscribers \(Array\) ← \$bus\b/],
    b: ["Cached", /\A500 of 500 Cached \([^)]+\): Cache::STORE \(Hash\)/],
    c: ["Env", /\A100 of 100 Env \([^)]+\): local env of block at .*stories\.rb:\d+ .*← \$callbacks/],
    d: ["Job", /\A50 of 50 Job \([^)]+\): Thread at .*stories\.rb:\d+ \(thread-local :jobs\)/],
    e: ["Handle", /\A30 of 30 Handle \([^)]+\): Array\[\] ← C address registered \(registered\.so\+0x\h+\)\z/],
    f: ["Finalized", /\A70 of 70 Finalized \([^)]+\): local captured .*finalizer/],
    g: ["Class", /\A1,000 of [\d,]+ Class \(.*\): .*Registry\.@made \(Array\)/]
  }.freeze
end
