-- ends by: instructions
local function again() while true do pcall(again) end end
again()
