# `cmake --install` gives a relocatable tree: bin/orrery finds share/orrery beside it.
include(GNUInstallDirs)
install(TARGETS orrery RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(beside orrery-simgrid orrery-service orrery-emulate)
  if(TARGET ${beside})
    install(TARGETS ${beside} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
foreach(folder
    models/data topologies/data workloads/data scenarios
    validation/training validation/collectives validation/compute validation/devices validation/energy
    validation/faults validation/serving)
  cmake_path(GET folder PARENT_PATH parent)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery/${parent}
          PATTERN CMakeLists.txt EXCLUDE)
endforeach()
# The scores that `orrery validate` must keep.
install(FILES validation/thresholds.yaml DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery/validation)
install(DIRECTORY include/orrery DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY schemas DESTINATION ${CMAKE_INSTALL_DATADIR}/orrery)
install(FILES ${CMAKE_BINARY_DIR}/orrery.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_BINARY_DIR}/orrery.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
install(FILES ${CMAKE_BINARY_DIR}/orrery.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME orrery)
install(FILES ${CMAKE_BINARY_DIR}/_orrery DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)

# A Debian package: cmake --build build/release --target package
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME orrery)
set(CPACK_PACKAGE_CONTACT "the Orrery authors <orrery@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "discrete-event simulator of AI clusters")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
include(CPack)
