-- ends by: script invalid conversion specification: '%1000000d'
return string.format("%1000000d", 1)
