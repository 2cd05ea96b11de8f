-- Requests of wrk: one sentence each, of the file SENTENCES, from another place for each connection's thread.
local sentences = {}
for line in io.lines(os.getenv("SENTENCES")) do
  local text = line:match("^([^\t]+)")
  if text then sentences[#sentences + 1] = text end
end
math.randomseed(1)

wrk.method = "POST"
wrk.headers["content-type"] = "application/json"

function request()
  local text = sentences[math.random(#sentences)]:gsub('[\\"]', "\\%0")
  return wrk.format(nil, "/translate", nil, '{"q":"' .. text .. '","source":"en","target":"fr"}')
end

function response(status)
  if status ~= 200 then print("status " .. status) end
end

function done(summary, latency)
  print(string.format("RESULT %d %d %d %d %d %d %d", summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    latency.max, summary.errors.status, summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout))
end
