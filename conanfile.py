# conanfile.py: the libraries of attn as a Conan package; fmt, Highway and JSON come from the system.
import pathlib

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.system import package_manager


class Attn(ConanFile):
    name = "attn"
    license = "MIT"
    description = "Attention for C++: every mechanism, exact, fast on a CPU"
    settings = "os", "arch", "compiler", "build_type"
    package_type = "shared-library"  # the static libraries are there too
    exports_sources = "CMakeLists.txt", "VERSION", "LICENSE", "cmake/*", "include/*", "src/*", "tests/cases/*"

    def set_version(self):
        self.version = (pathlib.Path(self.recipe_folder) / "VERSION").read_text(encoding="utf-8").strip()

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def system_requirements(self):
        package_manager.Apt(self).install(["libhwy-dev", "libfmt-dev", "nlohmann-json3-dev"], check=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("CLI", "TESTS", "EXAMPLES"):
            toolchain.cache_variables[f"ATTN_BUILD_{part}"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        # attn brings its own package files for find_package: attn::attn, attn::attn_static, attn::model.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/attn"]
        self.cpp_info.libs = ["attn"]
