-- The script with which wrk drives Bench::ServerLoad's server at a steady rate: each of its connections waits between
-- two requests, as independent users do: 150 ms on average. The random numbers are the same in each run.

function delay()
  return -150 * math.log(1 - math.random())
end
