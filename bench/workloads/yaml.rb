# frozen_string_literal: true

require "yaml"

services = Array.new(40) do |i|
  { "name" => "service-#{i}", "image" => "registry.example/team/service-#{i}:1.#{i}", "replicas" => i % 5,
    "environment" => { "DATABASE_URL" => "postgres://db-#{i}.example/app", "LOG_LEVEL" => "info", "TIMEOUT" => 2.5 },
    "ports" => [8000 + i, 9000 + i], "labels" => %w[web internal production] }
end
text = YAML.dump("services" => services)
bytes = 0
Program.rounds(250) do
  bytes += YAML.dump(YAML.safe_load(text)).bytesize
end
Program.result = bytes
