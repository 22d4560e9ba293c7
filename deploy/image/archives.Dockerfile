# What `make image` builds. No base image is pulled: deploy/image/build puts the binary and, for the
# lab, a root file system of Debian packages into the build context. They come as archives of fixed
# order and times, directories included, so that one commit gives the same layers each time.

FROM scratch AS binary
ADD binary.tar /

# The agent alone. Its user may do nothing special; where it listens on port 179 or programs the
# kernel it is given what deploy/kubernetes/daemonset.yaml names.
FROM binary AS agent
ADD agent.tar /
USER 65532:65532
ENTRYPOINT ["/usr/bin/vpp-route-agent"]
CMD ["run"]

# A node of a lab: Debian with BIRD, FRR, iproute2, gobgp and, when the builder has its packages,
# VPP.
FROM scratch AS lab
ADD lab.tar /
ADD gobgp.tar /
ADD binary.tar /
CMD ["/bin/bash"]
