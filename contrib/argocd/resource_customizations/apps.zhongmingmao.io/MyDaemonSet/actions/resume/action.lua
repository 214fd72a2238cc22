local rolling = (obj.spec.updateStrategy or {}).rollingUpdate or {}
if rolling.paused then
    rolling.paused = false
end
-- The annotation names the revision that stopped by itself: should the image or template have changed meanwhile, it has no effect.
local stops = {AutoPaused = true, RollingBack = true, RolledBack = true, NoEligibleNodes = true}
for _, condition in ipairs((obj.status or {}).conditions or {}) do
    if condition.type == "Progressing" and stops[condition.reason] then
        local failed = obj.status.failedRevisions or {}
        obj.metadata.annotations = obj.metadata.annotations or {}
        obj.metadata.annotations["apps.zhongmingmao.io/resume-revision"] = failed[#failed] or obj.status.updateRevision
    end
end
return obj
