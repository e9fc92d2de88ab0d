# Writes a text as a constant of C++, in pieces that any compiler takes.
file(READ ${SOURCE} text)
string(REGEX REPLACE "([^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n)" "\\1)~\"\nR\"~(" text "${text}")
file(WRITE ${OUTPUT} "#pragma once\n// Written by the build from ${NAME}.\n\nnamespace orrery::outside {\n\n"
     "inline constexpr char kPolicyHost[] = R\"~(${text})~\";\n\n}  // namespace orrery::outside\n")
