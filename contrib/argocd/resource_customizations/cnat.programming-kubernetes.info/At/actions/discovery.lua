local status = obj.status or {}
local waits = (status.phase or "PENDING") == "PENDING"
local suspended = obj.spec.suspend == true
local due = obj.spec.schedule == "now"
for _, condition in ipairs(status.conditions or {}) do
    -- Something keeps it from its start.
    if condition.type == "Reconciling" and condition.status == "True" then
        due = true
    end
end

return {
    ["suspend"] = {["disabled"] = not waits or suspended},
    ["resume"] = {["disabled"] = not waits or not suspended},
    -- A suspended one must be resumed first: otherwise it would still not run.
    ["run-now"] = {["disabled"] = not waits or suspended or due},
}
