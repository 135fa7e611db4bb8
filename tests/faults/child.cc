// tests/faults/child.cc: saves one thing into a folder, in its first or its second version: faults_child WHAT FOLDER
// VERSION.
#include "faults/saved.h"

#include <cstdio>
#include <cstdlib>

int main(int, char** arguments) {
  try {
    attn::testing::save_version(arguments[1], arguments[2], std::atoi(arguments[3]));
    return 0;
  } catch (const attn::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "not attn's: %s\n", error.what());
    return 3;
  }
}
