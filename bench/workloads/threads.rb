# frozen_string_literal: true

# Four workers behind two queues, as in a job runner: blocks are allocated by one thread and freed by another.
jobs = SizedQueue.new(100)
done = Queue.new
workers = Array.new(4) do
  Thread.new do
    while (job = jobs.pop)
      words = job.split(/\W+/)
      frequent = words.tally.sort_by { |word, count| [-count, word] }.first(10)
      done << frequent.map { |word, count| "#{word} was seen #{count} times" }.join("\n")
    end
  end
end

random = Random.new(7)
vocabulary = Array.new(300) { |i| "word#{i}" }
collected = Thread.new do
  bytes = 0
  while (text = done.pop)
    bytes += text.bytesize
  end
  bytes
end
Program.rounds(5_000) do
  jobs << Array.new(150) { vocabulary[random.rand(300)] }.join(" ")
end
4.times { jobs << nil }
workers.each(&:join)
done << nil
Program.result = collected.value
