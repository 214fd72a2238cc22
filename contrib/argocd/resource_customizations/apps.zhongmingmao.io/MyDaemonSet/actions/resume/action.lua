local rolling = (obj.spec.updateStrategy or {}).rollingUpdate or {}
if rolling.paused then
    rolling.paused = false
end
-- The annotation names the revision that stopped by itself: should the spec have changed meanwhile, it has no effect.
for _, condition in ipairs((obj.status or {}).conditions or {}) do
    if condition.type == "Progressing" and condition.reason == "AutoPaused" then
        obj.metadata.annotations = obj.metadata.annotations or {}
        obj.metadata.annotations["apps.zhongmingmao.io/resume-revision"] = obj.status.updateRevision
    end
end
return obj
