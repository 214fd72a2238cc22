local strategy = obj.spec.updateStrategy or {}
local paused = (strategy.rollingUpdate or {}).paused == true
local stopped = false
local stops = {AutoPaused = true, RollingBack = true, RolledBack = true, NoEligibleNodes = true}
for _, condition in ipairs((obj.status or {}).conditions or {}) do
    if condition.type == "Progressing" and stops[condition.reason] then
        stopped = true
    end
end

-- As kubectl mydaemonset does or refuses it.
return {
    ["pause"] = {["disabled"] = paused or strategy.type == "OnDelete"},
    ["resume"] = {["disabled"] = not paused and not stopped},
    -- A restart is another revision of the same content: it would get a stopped roll-out to its next nodes.
    ["restart"] = {["disabled"] = paused or stopped},
}
