-- The webhook records when the schedule was changed, and the lateness counts from then. Should the command have started
-- meanwhile, it rejects the change.
obj.spec.schedule = "now"
return obj
