-- The script with which wrk drives Bench::ServerLoad's server at a steady rate: each of its connections waits for 150 ms
-- between two requests, now more and now less, as independent users do. The random numbers are the same in each run.

function delay()
  return -150 * math.log(1 - math.random())
end
