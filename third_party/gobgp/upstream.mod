// The GoBGP that is patched. upstream.sum has its checksum, which go.sum loses to the replacement.
module vpp-route-agent

go 1.26.0

require github.com/osrg/gobgp/v3 v3.37.0
