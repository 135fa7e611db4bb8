# tests/conan/conanfile.py: builds and runs the project of tests/consumer with attn as a Conan package.
import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class Consumer(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeToolchain", "VirtualRunEnv"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder=os.path.join(os.pardir, "consumer"))
        cmake.build()

    def test(self):
        if can_run(self):
            for program in ("consumer", "consumer_model"):
                self.run(os.path.join(self.cpp.build.bindir, program), env="conanrun")
