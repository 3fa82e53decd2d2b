-- ends by: script require: "../../x" is no name of a file beside this one (letters, digits, _ and -)
require "../../x"
