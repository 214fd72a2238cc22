-- The status follows kstatus: observedGeneration, and the conditions Reconciling and Stalled, which are there only
-- while True.
--
-- A sync wave or hook of Argo CD waits until this is Healthy. An At that waits for its instant is Healthy, as a CronJob
-- is to Argo CD: one that is due next year must not hold the sync until then. So is one that is suspended, since
-- Suspended would hold the sync, too (https://github.com/argoproj/argo-cd/issues/24428). From its instant on, an At is
-- judged as a Job is.

local status = obj.status
if status == nil or status.observedGeneration ~= obj.metadata.generation then
    return {status = "Progressing", message = "the operator has not seen this spec yet"}
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
    conditions[condition.type] = condition
end

-- What the condition of that name says, if it has that status.
local function said(name, value)
    local condition = conditions[name]
    if condition ~= nil and condition.status == value then
        return condition.reason .. ": " .. condition.message
    end
end

-- It ended and did not succeed, or its spec is invalid.
local stalled = said("Stalled", "True")
if stalled then
    return {status = "Degraded", message = stalled}
end

-- It is due or runs.
local reconciling = said("Reconciling", "True")
if reconciling then
    return {status = "Progressing", message = reconciling}
end

-- The operator tries again, at the latest after 10 minutes.
local refused = said("PodAccepted", "False")
if refused then
    return {status = "Degraded", message = "not due yet, but a dry run of its pod is refused: " .. refused}
end

-- It succeeded; or is suspended or never due; or waits.
local message = said("Finished", "True")
if message == nil and status.reason ~= nil then
    message = status.reason .. ": " .. (status.message or "")
elseif message == nil and status.scheduledTime ~= nil then
    message = "due " .. status.scheduledTime
end
return {status = "Healthy", message = message}
