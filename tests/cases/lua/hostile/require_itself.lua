-- ends by: script require: require_itself.lua requires itself
require "require_itself"
