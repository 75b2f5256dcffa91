-- Asks Keyward to judge a request: `http-request lua.keyward <policy>` in haproxy.cfg. Sets the variable txn.keyward_decided if
-- the request may pass, replies to the client if it is refused, and sets nothing if there is no decision.

-- Where the policy reads keys; add cookie or others of "keyFrom". Nothing else of a client reaches Keyward.
local KEY_HEADERS = { "authorization", "x-api-key" }
-- What the client is told when its request passes, and the variables of haproxy.cfg.
local CLIENT_HEADERS = {
    ["keyward-credits-remaining"] = "txn.keyward_credits",
    ["ratelimit"] = "txn.keyward_ratelimit",
    ["ratelimit-policy"] = "txn.keyward_ratelimit_policy",
    ["x-ratelimit-limit"] = "txn.keyward_x_limit",
    ["x-ratelimit-remaining"] = "txn.keyward_x_remaining",
    ["x-ratelimit-reset"] = "txn.keyward_x_reset",
}
-- Headers of a refusal that HAProxy sets itself.
local OWN_HEADERS = { ["content-length"] = true, ["transfer-encoding"] = true, ["connection"] = true, ["date"] = true }

local function question(txn)
    local sent = txn.http:req_get_headers()
    local headers = {
        ["x-forwarded-for"] = { txn.sf:src() },
        ["x-forwarded-method"] = { txn.sf:method() },
        ["x-forwarded-uri"] = { txn.sf:pathq() },
    }
    for _, name in ipairs(KEY_HEADERS) do
        -- HAProxy counts values from 0; the client of Lua counts them from 1.
        for index, value in pairs(sent[name] or {}) do
            headers[name] = headers[name] or {}
            headers[name][index + 1] = value
        end
    end
    return headers
end

local function is_identity(name)
    return name:find("^keyward%-") ~= nil
end

local function pass(txn, answer)
    for name, values in pairs(answer.headers) do
        if is_identity(name) then
            txn.http:req_set_header(name, values[0])
        end
        if CLIENT_HEADERS[name] then
            txn:set_var(CLIENT_HEADERS[name], values[0])
        end
    end
    -- A header for which the buffer has no room is not set, and that is not reported. Without its identity, the request may not pass.
    local set = txn.http:req_get_headers()
    for name, values in pairs(answer.headers) do
        if is_identity(name) and (set[name] or {})[0] ~= values[0] then
            core.Alert("keyward: no room for " .. name .. ": raise tune.bufsize and tune.maxrewrite")
            -- Where requests pass without a decision, they pass without an identity.
            for each in pairs(answer.headers) do
                if is_identity(each) then
                    txn.http:req_del_header(each)
                end
            end
            return
        end
    end
    txn:set_var("txn.keyward_decided", true)
end

local function refuse(txn, answer)
    local reply = txn:reply({ status = answer.status, body = answer.body })
    for name, values in pairs(answer.headers) do
        if not OWN_HEADERS[name] then
            for _, value in pairs(values) do
                reply:add_header(name, value)
            end
        end
    end
    txn:done(reply)
end

core.register_action("keyward", { "http-req" }, function(txn, policy)
    local answer = core.httpclient():get({
        url = "http://keyward/gateway/" .. policy,
        headers = question(txn),
        dst = "abns@keyward",
    })
    local status = answer and answer.status or 0
    if status == 200 then
        pass(txn, answer)
    elseif status >= 400 and status < 500 then
        refuse(txn, answer)
    end
end, 1)
