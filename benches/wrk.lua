-- wrk script: POST requests with a bearer, one for each key of a file, built once and then cycled.
-- KEYFILE: one key a line. ROOT: the bearer. HEAD, TAIL: what stands before and after the key in the body. FIRST: how
-- many keys are passed over at first.
-- CHECK=1: look at every answer and count those that do not hold MARKER. That costs wrk more than the request itself, so
-- only warm-ups do it.
local requests, next_request = {}, 0
local threads = {}
wrong, sample = 0, ""

function setup(thread)
  threads[#threads + 1] = thread
end

function init()
  local headers = {
    ["Content-Type"] = "application/json",
    ["Authorization"] = "Bearer " .. os.getenv("ROOT"),
  }
  local head, tail = os.getenv("HEAD"), os.getenv("TAIL")
  for key in io.lines(os.getenv("KEYFILE")) do
    requests[#requests + 1] = wrk.format("POST", wrk.path, headers, head .. key .. tail)
  end
  next_request = tonumber(os.getenv("FIRST")) % #requests
end

function request()
  next_request = next_request % #requests + 1
  return requests[next_request]
end

-- wrk parses answers for Lua only when a function of this name exists.
if os.getenv("CHECK") == "1" then
  local marker = os.getenv("MARKER")
  function response(status, headers, body)
    if status ~= 200 or not body:find(marker, 1, true) then
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
    'JSON {"requests":%d,"duration_us":%d,"p50_us":%.0f,"p99_us":%.0f,"non_2xx":%d,"socket_errors":%d,"wrong":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout, wrong_answers))
  io.write("SAMPLE " .. wrong_sample .. "\n")
end
