-- The status follows kstatus: observedGeneration, and the conditions Reconciling and Stalled, which are there only
-- while True. The messages are the operator's.

local status = obj.status
if status == nil or status.observedGeneration ~= obj.metadata.generation then
    return {status = "Progressing", message = "the operator has not seen this spec yet"}
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
    conditions[condition.type] = condition
end

local function is(name, value)
    local condition = conditions[name]
    return condition ~= nil and condition.status == value
end

-- That health, with the message of the condition of that name.
local function judge(health, name)
    return {status = health, message = (conditions[name] or {}).message}
end

if is("Accepted", "False") then
    return judge("Degraded", "Accepted")
end

-- The roll-out stopped by itself, or its revision cannot be stored.
if is("Stalled", "True") then
    return judge("Degraded", "Stalled")
end

-- While a roll-out goes on, the operator itself judges pods that fail: it stops the roll-out, or waits for them. Pods
-- that the API server refuses need a user.
local rolling = is("Reconciling", "True")
if status.state == "Degraded" and not (rolling and conditions.Degraded.reason == "PodsFail") then
    return judge("Degraded", "Degraded")
end
if rolling then
    return judge("Progressing", "Reconciling")
end

-- Pods that are not ready and do not fail: Progressing, as for a DaemonSet.
if is("Available", "False") then
    return judge("Progressing", "Available")
end

-- What a partition, OnDelete or a cordon holds is Healthy, as for a StatefulSet or a DaemonSet: Suspended would hold
-- the sync. A user who pauses a roll-out, or is to approve it, wants that, as with a Rollout.
local reason = (conditions.Progressing or {}).reason
if reason == "Paused" or reason == "WaitingForApproval" then
    return judge("Suspended", "Progressing")
end
return judge("Healthy", "Progressing")
