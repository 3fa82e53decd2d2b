-- ends by: time
local a, b = ("x"):rep(500000), ("x"):rep(499999) .. "x"
while true do local same = a == b end
