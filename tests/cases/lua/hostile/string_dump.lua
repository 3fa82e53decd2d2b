-- ends by: script attempt to call a nil value (field 'dump')
return string.dump(function() end)
