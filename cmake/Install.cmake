# `cmake --install`: the four programs with the libraries that they need, in a folder that may be moved, also to machines without
# packages (deploy/bundle). The C library and the card's stay the machine's.
install(TARGETS tessera tessera-master tessera-ps tessera-worker
  RUNTIME_DEPENDENCY_SET tessera_libraries DESTINATION bin)
install(RUNTIME_DEPENDENCY_SET tessera_libraries
  PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread|resolv)\\.so" "^ld-linux" "^libcu(da|dart|blas|blasLt)\\.so"
  DESTINATION lib)
