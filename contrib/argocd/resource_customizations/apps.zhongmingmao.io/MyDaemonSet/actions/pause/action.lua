local strategy = obj.spec.updateStrategy or {}
strategy.rollingUpdate = strategy.rollingUpdate or {}
strategy.rollingUpdate.paused = true
obj.spec.updateStrategy = strategy
return obj
