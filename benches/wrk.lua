-- wrk script: requests with a bearer, one for each key of a file, built once and then cycled.
-- KEYFILE: one key a line. FIRST: how many keys are passed over at first.
-- SENDER: who sends the requests. caller: ROOT is the bearer, and the key is in the body between HEAD and TAIL. gateway:
-- the key is the bearer, as the gateway has received it, and SECRET is that of the gateway. client: the key is the bearer.
-- CHECK=1: look at every answer and count those that do not hold MARKER, in the body or in MARKER_HEADER. That costs wrk
-- more than the request itself, so only warm-ups do it.
local requests, next_request = {}, 0
local threads = {}
wrong, sample = 0, ""

function setup(thread)
  threads[#threads + 1] = thread
end

local senders = {}

function senders.caller(key)
  local headers = {
    ["Content-Type"] = "application/json",
    ["Authorization"] = "Bearer " .. os.getenv("ROOT"),
  }
  return wrk.format("POST", wrk.path, headers, os.getenv("HEAD") .. key .. os.getenv("TAIL"))
end

function senders.gateway(key)
  return wrk.format("GET", wrk.path, {
    ["Authorization"] = "Bearer " .. key,
    ["Keyward-Gateway-Secret"] = os.getenv("SECRET"),
    ["X-Forwarded-Method"] = "GET",
    ["X-Forwarded-Uri"] = "/documents/1",
  })
end

function senders.client(key)
  return wrk.format("GET", wrk.path, { ["Authorization"] = "Bearer " .. key })
end

function init()
  local sender = senders[os.getenv("SENDER")]
  for key in io.lines(os.getenv("KEYFILE")) do
    requests[#requests + 1] = sender(key)
  end
  next_request = tonumber(os.getenv("FIRST")) % #requests
end

function request()
  next_request = next_request % #requests + 1
  return requests[next_request]
end

-- wrk parses answers for Lua only when a function of this name exists.
if os.getenv("CHECK") == "1" then
  local marker, header = os.getenv("MARKER"), os.getenv("MARKER_HEADER")
  function response(status, headers, body)
    local marked = header and (headers[header] or "") or body
    if status ~= 200 or not marked:find(marker, 1, true) then
      wrong = wrong + 1
      sample = status .. " " .. body:sub(1, 300)
    end
  end
end

function done(summary, latency)
  local wrong_answers, wrong_sample = 0, ""
  for _, thread in ipairs(threads) do
    wrong_answers = wrong_answers + thread:get("wrong")
    if thread:get("sample") ~= "" then wrong_sample = thread:get("sample") end
  end
  local errors = summary.errors
  io.write(string.format(
    'JSON {"requests":%d,"duration_us":%d,"p50_us":%.0f,"p99_us":%.0f,"errors":%d,"unanswered":%d,"wrong":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout, wrong_answers))
  io.write("SAMPLE " .. wrong_sample .. "\n")
end
